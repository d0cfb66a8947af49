"""Scripts that are run by their name see what they see bare, whatever their first line looks like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aorta_collectors.launch.value import Launch
from tests.launch.corpus import ARM
from tests.support import BIN, PYTHON, run

PROGRAM = "import sys\nprint(sys.argv, sys.path[0], sys.stdout.write_through, sys.warnoptions, __file__)\n"
SCRIPTS = {
    "run.py": f"#!{PYTHON} -u\n",
    "by env.py": "#!/usr/bin/env -S python -u -W ignore\n",
    "bin/train": f"#!/bin/sh\n'''exec' \"{PYTHON}\" \"$0\" \"$@\"\n' '''\n",
}
COMMANDS = [
    ["./run.py", "--lr", "2"],
    ["timeout", "100", "./by env.py"],
    ["train", "-m", "x"],
    ["env", "PYTHONPATH=/mine", "train"],
]


@pytest.mark.parametrize("argv", COMMANDS, ids=lambda argv: " ".join(argv))
def test_a_script_sees_what_it_sees_bare(argv: list[str], tmp_path: Path) -> None:
    for name, first in SCRIPTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(first + PROGRAM)
        (tmp_path / name).chmod(0o755)
    path = {"PATH": os.pathsep.join([str(BIN), str(tmp_path / "bin"), os.environ["PATH"]])}
    launch = Launch.of_this_process(argv, path, str(tmp_path)).armed_with(ARM)
    assert launch.route == "front-end"
    # Names in argv are looked for in the PATH of the starting process.
    ours, bare = (
        run(["env", f"PATH={path['PATH']}", *words], tmp_path, env).ok()
        for words, env in (
            (launch.argv, {name: value for name, value in launch.env.items() if value is not None}),
            (argv, {}),
        )
    )
    assert (ours.out, ours.err) == (bare.out, bare.err)
