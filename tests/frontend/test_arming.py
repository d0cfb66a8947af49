"""When the front-end arms collectors, and that nothing but the collectors' own output shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aorta_collectors.environment import bootstrap_directory
from aorta_collectors.frontend.arming import let_children_arm
from tests.frontend.compare import FRONTEND, bare_and_framed, same, script
from tests.support import PYTHON, ROOT, Ran, run


@pytest.fixture
def with_fake_torch(tmp_path: Path) -> Path:
    """A directory with a module named torch, and collectors that say when they were armed."""
    script(tmp_path / "torch.py", "READY = True\nprint('torch is imported')\n")
    script(
        tmp_path / "collectors.py",
        """
        import sys
        def first(started_in): print("first armed", sys.modules["torch"].READY)
        def second(started_in): print("second armed")
        def broken(started_in): raise ValueError("cannot be armed")
        """,
    )
    script(tmp_path / "uses_torch.py", "print('before')\nimport torch\nimport torch\nprint('after')\n")
    script(tmp_path / "no_torch.py", "import sys\nprint('torch' in sys.modules)\n")
    return tmp_path


def run_armed(cwd: Path, words: list[str], arm: str, **env: str) -> Ran:
    return run([PYTHON, "-m", FRONTEND, *words], cwd, {"AORTA_COLLECTORS_ARM": arm, **env})


class TestArming:
    def test_collectors_are_armed_in_order_right_after_the_program_imported_torch(self, with_fake_torch: Path) -> None:
        ran = run_armed(with_fake_torch, ["uses_torch.py"], "collectors:first collectors:second").ok()
        expected = ["before", "torch is imported", "first armed True", "second armed", "after"]
        assert sorted(ran.out.splitlines()[2:4]) == sorted(expected[2:4])
        assert ran.out.splitlines() == expected

    def test_a_program_without_torch_never_loads_it_nor_a_collector(self, with_fake_torch: Path) -> None:
        ran = run_armed(with_fake_torch, ["no_torch.py"], "collectors:first").ok()
        assert (ran.out, ran.err) == ("False\n", "")

    def test_the_front_end_itself_loads_nothing_beyond_the_standard_library(self, tmp_path: Path) -> None:
        show = "import sys; print(*sorted({name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
        bare, framed = bare_and_framed(tmp_path, ["-c", show], env={"AORTA_COLLECTORS_ARM": "some:collector"})
        assert set(framed.out.split()) - set(bare.out.split()) <= {"aorta_collectors"}

    @pytest.mark.parametrize("switch", ["off", "OFF"])
    def test_the_switch_arms_nothing(self, with_fake_torch: Path, switch: str) -> None:
        ran = run_armed(with_fake_torch, ["uses_torch.py"], "collectors:first", AORTA_COLLECTORS=switch).ok()
        assert ran.out.splitlines() == ["before", "torch is imported", "after"]
        assert ran.err == ""

    @pytest.mark.parametrize(
        ("arm", "message"),
        [
            ("nowhere:arm", "could not arm nowhere:arm: ModuleNotFoundError: No module named 'nowhere'"),
            ("collectors:gone", "could not arm collectors:gone: AttributeError: module 'collectors' has no attribute"),
            ("collectors:broken", "could not arm collectors:broken: ValueError: cannot be armed"),
        ],
    )
    def test_a_collector_that_cannot_be_armed_says_so_in_one_line(
        self, with_fake_torch: Path, arm: str, message: str
    ) -> None:
        ran = run_armed(with_fake_torch, ["uses_torch.py"], f"{arm} collectors:second").ok()
        assert ran.out.splitlines() == ["before", "torch is imported", "second armed", "after"]
        assert len(ran.err.splitlines()) == 1
        assert ran.err.startswith(f"aorta-collectors: {message}")

    def test_torch_keeps_its_own_loader_and_spec(self, with_fake_torch: Path) -> None:
        show = "import torch; print(type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__)"
        ran = run_armed(with_fake_torch, ["-c", show], "collectors:second").ok()
        assert ran.out.splitlines() == ["torch is imported", "second armed", "SourceFileLoader True"]

    def test_a_program_that_only_asks_where_torch_is_gets_torchs_own_answer(self, with_fake_torch: Path) -> None:
        """Libraries probe for torch with find_spec, and tools read sources through its loader."""
        show = """
            import importlib.util, sys
            spec = importlib.util.find_spec("torch")
            print(spec.name, spec.origin, spec.loader.get_filename("torch"), "torch" in sys.modules)
            print(spec.loader.get_source("torch"), spec.loader.path, spec.loader.is_package("torch"))
            """
        script(with_fake_torch / "asks.py", show)
        same(with_fake_torch, ["asks.py"], env={"AORTA_COLLECTORS_ARM": "collectors:first"})

    def test_torch_that_can_be_imported_at_the_second_attempt_is_armed_then(self, with_fake_torch: Path) -> None:
        script(with_fake_torch / "torch.py", "import os\nREADY = os.environ['READY']\n")
        source = """
            import os
            try:
                import torch
            except KeyError:
                os.environ["READY"] = "now"
            import torch
            print("after")
            """
        script(with_fake_torch / "twice.py", source)
        ran = run_armed(with_fake_torch, ["twice.py"], "collectors:first").ok()
        assert (ran.out, ran.err) == ("first armed now\nafter\n", "")

    def test_an_import_of_torch_that_fails_fails_as_it_would_have(self, tmp_path: Path) -> None:
        script(tmp_path / "torch.py", "import nowhere_to_be_found\n")
        script(tmp_path / "tries.py", "try:\n    import torch\nexcept ImportError as error:\n    print(error.name)\n")
        ran = run_armed(tmp_path, ["tries.py"], "collectors:first").ok()
        assert (ran.out, ran.err) == ("nowhere_to_be_found\n", "")

    def test_a_program_without_torch_installed_sees_the_usual_error(self, tmp_path: Path) -> None:
        script(tmp_path / "tries.py", "import torch\n")
        env = {"AORTA_COLLECTORS_ARM": "x:y", "PYTHONPATH": os.fspath(Path(__file__).parents[2])}
        framed = run([PYTHON, "-S", "-m", FRONTEND, "tries.py"], tmp_path, env)
        bare = run([PYTHON, "-S", "tries.py"], tmp_path, env)
        assert (framed.code, framed.err) == (bare.code, bare.err)


class TestChildren:
    """What is put into the environment reaches the Python processes that the program starts."""

    def test_a_child_is_armed_and_sees_its_own_path(self, with_fake_torch: Path) -> None:
        source = """
            import os, subprocess, sys
            from aorta_collectors.frontend.arming import let_children_arm
            show = "import json, sys; print(json.dumps([sys.path, sys.argv])); import torch"
            def child():
                subprocess.run([sys.executable, "-c", show, "a"], check=True)
            child()
            for name in ("collectors:first", "collectors:second", "collectors:first"):
                let_children_arm(name, os.environ)
            child()
            """
        script(with_fake_torch / "starts.py", source)
        ran = run([PYTHON, "-u", "starts.py"], with_fake_torch, {"PYTHONPATH": os.fspath(with_fake_torch)}).ok()
        bare = ran.out.splitlines()[:2]
        assert bare[1] == "torch is imported"
        assert ran.out.splitlines()[2:] == [*bare, "first armed True", "second armed"]
        assert ran.err == ""

    @pytest.mark.parametrize("path", ["", "a", "a::b"])
    def test_the_users_path_is_kept_and_ours_comes_once(self, path: str) -> None:
        environ = {"PYTHONPATH": path} if path else {}
        for _ in range(2):
            let_children_arm("x:y", environ)
        first, _, rest = environ["PYTHONPATH"].partition(os.pathsep)
        assert (first, rest) == (bootstrap_directory(), path)
        assert environ["AORTA_COLLECTORS_ARM"] == "x:y"

    def test_a_path_that_pythonpath_cannot_hold_is_said_and_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "a:b").mkdir()
        (tmp_path / "a:b" / "aorta_collectors").symlink_to(ROOT / "aorta_collectors")
        code = (
            "import os, sys; sys.path.insert(0, os.path.abspath('a:b'))\n"
            "from aorta_collectors.frontend.arming import let_children_arm\n"
            "let_children_arm('x:y', os.environ); print(os.environ['PYTHONPATH'])"
        )
        ran = run([PYTHON, "-c", code], tmp_path, {"PYTHONPATH": "/mine"}).ok()
        assert ran.out == "/mine\n"
        assert ran.err.startswith("aorta-collectors: the processes that this program starts are not observed, since ")
        assert ran.err.endswith("which PYTHONPATH cannot hold; put the package elsewhere\n")
