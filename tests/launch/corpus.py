"""The corpus of commands, and how one of its rows is asked of the parser.

A row has an `argv` as people write it, and one of
  becomes: argv after rewriting
  route: "environment", with a part of the note, and `words` where argv gets words that pass variables on
  refused: a part of the reason
and may say which `files` there are (those in bin/ are on PATH), which `environ` holds, and that the `interpreter` must
be ours. Marks in braces stand for what depends on the place of the package.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from aorta_collectors.environment import ARM_VARIABLE, bootstrap_directory
from aorta_collectors.launch.names import frontend_file
from aorta_collectors.launch.value import Launch
from tests.support import BIN, PYTHON, ROOT

CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "corpus.json").read_text())
ARM = "aorta_collectors.some:arm"
EVIDENCE = "/evidence"
SITE = bootstrap_directory()
#: What a collector has set before the launch is armed. A variable that is to be removed is never passed on.
VARIABLES: dict[str, str | None] = {"NANLOG_DIR": EVIDENCE, "NANLOG_SPEC": None}


def name_of(row: dict[str, Any]) -> str:
    return " ".join(row["argv"])[:70] or "nothing"


def armed(argv: list[str], interpreter: str = "") -> Launch:
    return Launch(tuple(argv), VARIABLES, interpreter=interpreter).armed_with(ARM, Path(EVIDENCE))


def launch_of(row: dict[str, Any], cwd: Path) -> Launch:
    """The row's command, armed, where its files and variables are."""
    for name, text in row.get("files", {}).items():
        path = cwd / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("{python}", PYTHON))
        path.chmod(0o755)
    os.environ.update(row.get("environ", {}))
    os.environ["PATH"] = os.pathsep.join([str(cwd / "bin"), str(BIN), os.environ.get("PATH", os.defpath)])
    return armed(filled(row["argv"], cwd), PYTHON if row.get("interpreter") == "ours" else "")


def filled(words: list[str], cwd: Path) -> list[str]:
    """Words with the marks of the corpus replaced."""
    found: list[str] = []
    for word in words:
        docker = re.fullmatch(r"\{docker(:.*)?\}", word)
        if word == "{variables}":
            found += [f"{ARM_VARIABLE}={ARM}", f"NANLOG_DIR={EVIDENCE}", f"PYTHONPATH={SITE}"]
        elif word == "{exports}":
            found += ["-x", ARM_VARIABLE, "-x", "NANLOG_DIR", "-x", "PYTHONPATH"]
        elif word == "{bind}":
            found += _mounts("--bind")
        elif word == "{mounts}":
            found += _mounts("--volume")[:-2]
        elif docker is not None:
            found += ["-e", f"{ARM_VARIABLE}={ARM}", "-e", f"NANLOG_DIR={EVIDENCE}"]
            found += ["-e", f"PYTHONPATH={SITE}{docker.group(1).rstrip(':')}"] if docker.group(1) else []
            found += _mounts("--volume")
        else:
            for mark, value in _marks(cwd).items():
                word = word.replace(mark, value)
            found.append(word)
    return found


def _marks(cwd: Path) -> dict[str, str]:
    return {
        "{by_path}": frontend_file(),
        "{arm}": f"{ARM_VARIABLE}={ARM}",
        "{site}": SITE,
        "{names}": f"{ARM_VARIABLE},NANLOG_DIR,PYTHONPATH",
        "{python}": PYTHON,
        "{bin}": str(BIN),
        "{cwd}": str(cwd),
    }


def _mounts(option: str) -> list[str]:
    """Of a checkout: the package and its schemas to read, and the directory of the evidence to write."""
    package, schemas = ROOT / "aorta_collectors", ROOT / "schemas"
    mounts = (f"{package}:{package}:ro", f"{schemas}:{schemas}:ro", f"{EVIDENCE}:{EVIDENCE}")
    return [word for mount in mounts for word in (option, mount)]
