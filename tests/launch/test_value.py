"""`Launch` as a value: several collectors on one, the environment it makes, and the line of shell that shows it."""

from __future__ import annotations

import json
import os
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta_collectors.environment import ARM_VARIABLE
from aorta_collectors.errors import LaunchError
from aorta_collectors.launch.value import Launch
from tests.launch.corpus import ARM, CORPUS, SITE
from tests.support import BIN, PYTHON, run

# Prints argv and environment as they arrived, one JSON line.
ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
A, B = "aorta_collectors.a:arm", "aorta_collectors.b:arm"


class TestSeveralCollectors:
    @pytest.mark.parametrize("argv", [("python", "train.py"), ("bash", "run.sh"), ("torchrun", "-m", "pkg")])
    def test_a_second_collector_shares_the_front_end_of_the_first(self, argv: tuple[str, ...]) -> None:
        first = Launch(argv).armed_with(A)
        second = first.armed_with(B)
        assert (second.argv, second.route, second.note) == (first.argv, first.route, first.note)
        assert second.env[ARM_VARIABLE] == f"{A} {B}"

    def test_between_two_collectors_another_may_have_put_a_profiler_around(self) -> None:
        first = Launch(("python", "train.py")).armed_with(A)
        wrapped = Launch(("rocprofv3", "-d", "out", "--", *first.argv), first.env, first.route, first.note)
        second = wrapped.armed_with(B)
        assert (second.argv, second.route, second.note) == (wrapped.argv, "front-end", first.note)

    def test_what_proton_wraps_is_run_in_the_front_end(self) -> None:
        argv = ("python", "-u", "-m", "triton.profiler.proton", "-n", "out/proton", "train.py")
        front = ("-m", "aorta_collectors.frontend")
        assert Launch(argv).armed_with(A).argv == (*argv[:2], *front, *argv[2:])

    @pytest.mark.parametrize(
        "argv",
        [
            ("env", "-i", "python", "train.py"),
            ("docker", "run", "image", "python", "train.py"),
            ("docker", "run", "image", "bash", "run.sh"),
        ],
        ids=" ".join,
    )
    def test_the_variables_of_the_second_get_through_as_well(self, argv: tuple[str, ...]) -> None:
        first = Launch(argv).with_env({"A_DIR": "/a"}).armed_with(A, Path("/a"))
        second = first.with_env({"B_DIR": "/b"}).armed_with(B, Path("/b"))
        # Of two words for one variable the last counts.
        seen = dict(entry.split("=", 1) for entry in second.argv if "=" in entry)
        assert (seen["A_DIR"], seen["B_DIR"], seen[ARM_VARIABLE]) == ("/a", "/b", f"{A} {B}")
        assert sum(entry.endswith("by_path.py") for entry in second.argv) <= 1
        assert second.argv.count("A_DIR=/a") == 1
        if argv[0] == "docker":
            volumes = [entry for entry in second.argv if entry.startswith("/") and ":" in entry]
            assert len(volumes) == len(set(volumes))
            assert {"/a:/a", "/b:/b"} < set(volumes)

    def test_a_workload_inside_the_host_keeps_its_route(self) -> None:
        launch = Launch((), route="in-process").armed_with(ARM)
        assert (launch.argv, launch.route, dict(launch.env)) == ((), "in-process", {ARM_VARIABLE: ARM})


class TestEnvironment:
    def test_the_users_python_path_comes_after_ours(self) -> None:
        launch = Launch(("bash", "run.sh"), python_path="/a:/b").armed_with(ARM)
        assert launch.env["PYTHONPATH"] == f"{SITE}:/a:/b"

    def test_of_this_process_takes_the_users_own_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", "/mine")
        assert Launch.of_this_process(["x"]).python_path == "/mine"
        assert Launch.of_this_process(["x"], {"PYTHONPATH": None}).python_path == ""
        asked = Launch.of_this_process(["docker", "run", "image", "python", "x.py"], {"LR": "1", "PATH": str(BIN)})
        launch = asked.with_env({"NANLOG_DIR": "/a"}).armed_with(A)
        assert launch.env["LR"] == "1"
        # Into a container go the collector's variables alone; the user's command says what else does.
        assert [word.partition("=")[0] for word in launch.argv if "=" in word] == [ARM_VARIABLE, "NANLOG_DIR"]

    def test_what_both_set_is_the_collectors(self) -> None:
        asked = Launch.of_this_process(["env", "-i", "python", "x.py"], {"PYTHONPATH": "/mine", "NANLOG_DIR": "/mine"})
        launch = replace(asked, interpreter="").with_env({"NANLOG_DIR": "/a"}).armed_with(A)
        assert [word for word in launch.argv if "=" in word] == [
            f"{ARM_VARIABLE}={A}",
            "NANLOG_DIR=/a",
            f"PYTHONPATH={SITE}",
        ]

    def test_a_script_is_looked_for_where_the_command_is_started(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(f"#!{PYTHON}\n")
        (tmp_path / "train.py").chmod(0o755)
        assert Launch.of_this_process(["./train.py"]).armed_with(A).route == "environment"
        there = Launch.of_this_process(["./train.py"], directory=str(tmp_path)).armed_with(A)
        assert there.argv == (PYTHON, "-m", "aorta_collectors.frontend", "./train.py")
        moved = Launch.of_this_process(["env", "-C", "/", "./train.py"], directory=str(tmp_path)).armed_with(A)
        assert moved.route == "environment"

    def test_a_variable_to_be_removed_needs_no_passing(self) -> None:
        launch = Launch(("env", "-i", "python", "x.py")).with_env({"NANLOG_SPEC": None}).armed_with(A)
        assert not [word for word in launch.argv if "NANLOG_SPEC" in word]

    def test_apptainer_gets_its_own_prefixes_also_through_an_emptied_environment(self) -> None:
        argv = ("env", "-i", "PATH=/usr/bin", "apptainer", "exec", "--cleanenv", "image.sif", "python", "x.py")
        launch = Launch(argv).with_env({"NANLOG_SPEC": '{"a": 1, "b": 2}'}).armed_with(A)
        for prefix in ("APPTAINERENV_", "SINGULARITYENV_"):
            assert launch.env[f"{prefix}NANLOG_SPEC"] == '{"a": 1, "b": 2}'
            assert f'{prefix}NANLOG_SPEC={{"a": 1, "b": 2}}' in launch.argv
            assert f"{prefix}PYTHONPATH" not in launch.env  # the image's own is kept
        # Nor are those prefixed once more for a second collector.
        again = launch.armed_with(B)
        assert set(again.env) == set(launch.env)
        assert again.env[f"APPTAINERENV_{ARM_VARIABLE}"] == f"{A} {B}"

    @pytest.mark.parametrize("argv", [("docker", "run", "i", "python", "x"), ("apptainer", "exec", "i", "python", "x")])
    def test_a_directory_that_cannot_be_mounted_is_named(self, argv: tuple[str, ...]) -> None:
        with pytest.raises(LaunchError, match=r"/odd:name cannot be mounted into a container"):
            Launch(argv).armed_with(A, Path("/odd:name"))

    def test_a_collector_of_another_package_is_not_there_in_a_container(self) -> None:
        with pytest.raises(LaunchError, match="their_package:arm is not there in the container"):
            Launch(("docker", "run", "image", "python", "x.py")).armed_with("their_package:arm")

    def test_files_that_a_collector_reads_are_mounted_to_be_read(self) -> None:
        launch = Launch(("podman", "run", "image", "python", "x.py")).armed_with(A, Path("/out"), [Path("/etc/spec")])
        assert "/etc/spec:/etc/spec:ro" in launch.argv
        assert "/out:/out" in launch.argv

    def test_without_a_collector_a_launch_stays_as_it_was_written(self) -> None:
        for row in CORPUS:
            launch = Launch(tuple(row["argv"])).with_env({})
            assert (list(launch.argv), launch.route, dict(launch.env)) == (row["argv"], "unchanged", {})

    def test_a_launch_cannot_be_changed_through_the_mapping_it_was_given(self) -> None:
        env: dict[str, str | None] = {"A": "1"}
        launch = Launch(("x",), env)
        env["A"] = "2"
        assert launch.env["A"] == "1"
        with pytest.raises(TypeError):
            launch.env["A"] = "3"  # type: ignore[index]


names = st.text(string.ascii_uppercase + string.digits + "_", min_size=1, max_size=6).map(lambda text: f"AC_{text}")
hostile = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.sampled_from(
        ["", " ", "'", '"', "\n", "$HOME", "`id`", "$(id)", "\\", "a b", "~", "*", "!", "#", ";", "&", "=", "-n"]
    ),
)
launches = st.lists(
    st.tuples(st.lists(hostile, max_size=5), st.dictionaries(names, st.one_of(st.none(), hostile), max_size=4)),
    min_size=1,
    max_size=12,
)


class TestShellText:
    @settings(max_examples=12, deadline=None)
    @given(launches)
    def test_a_shell_gives_the_program_the_same_words_and_variables(
        self, launches: list[tuple[list[str], dict[str, str | None]]]
    ) -> None:
        lines = [Launch((PYTHON, "-S", "-c", ECHO, *argv), env).shell_text() for argv, env in launches]
        inherited = {name: "inherited" for _, env in launches for name in env}
        ran = run(["sh", "-c", "\n".join(lines)], Path.cwd(), {**inherited, "PYTHONUTF8": "1"}).ok()
        # splitlines would also split at characters that JSON leaves as they are.
        for (argv, env), line in zip(launches, ran.out.strip("\n").split("\n"), strict=True):
            got_argv, got_env = json.loads(line)
            assert got_argv == argv
            for name in inherited:
                assert got_env.get(name) == env.get(name, "inherited")

    @pytest.mark.parametrize("name", ["my.option", "1ST", "with-dash"])
    def test_a_variable_that_is_no_shell_identifier_arrives_too(self, name: str, tmp_path: Path) -> None:
        text = Launch((PYTHON, "-S", "-c", ECHO), {name: "a b"}).shell_text()
        ran = run(["sh", "-c", text], tmp_path).ok()
        assert json.loads(ran.out)[1][name] == "a b"

    def test_it_reads_as_a_person_would_write_it(self) -> None:
        launch = Launch(("python", "train.py", "a b"), {"B": "2", "A": "x y"})
        assert launch.shell_text() == "A='x y' B=2 python train.py 'a b'"
        assert Launch(("python",), {"A": None, "B": "1"}).shell_text() == "env -u A B=1 python"

    @pytest.mark.parametrize("options", [["-i"], ["-u", "NANLOG_DIR"], ["NANLOG_DIR=x"]], ids=" ".join)
    def test_env_lets_exactly_the_collectors_variables_through(self, options: list[str], tmp_path: Path) -> None:
        os.environ["AC_OTHER"] = "1"
        argv = ("env", *options, PYTHON, "-c", ECHO)
        launch = Launch(argv).with_env({"NANLOG_DIR": "a b", "NANLOG_X": ""}).armed_with(A)
        set_here = {name: value for name, value in launch.env.items() if value is not None}
        seen = json.loads(run(list(launch.argv), tmp_path, set_here).ok().out)[1]
        assert {name: seen.get(name) for name in set_here} == set_here
        assert ("AC_OTHER" in seen) == (options != ["-i"])
