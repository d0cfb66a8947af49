"""What a recipe says of a script: `workload_config` checked, and the command that it stands for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aorta_collectors.errors import OptionsError
from aorta_collectors.launch.value import Launch
from aorta_collectors.schema_check import check

SCHEMA = "script_workload"
# The host adds these to workload_config.
_HOSTS_OWN = ("steps",)
_HOSTS_PREFIX = "_aorta_"


@dataclass(frozen=True)
class ScriptConfig:
    """One trial's command.

    Attributes:
        argv: The command, with torchrun in it where ranks are asked for.
        cwd: Absolute.
        env: Variables that the recipe sets for the command; None removes one.
        timeout_s: Seconds that it may take, or None.
        fail_on: "nonfinite", "huge": what a collector sees that fails the trial.
        steps: The recipe's `steps`, which the script is not told of; what it takes is held against them.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str | None] = field(default_factory=dict)
    timeout_s: float | None = None
    fail_on: frozenset[str] = frozenset({"nonfinite"})
    steps: int | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ScriptConfig:
        """Take the recipe's part out of the configuration that the host gives a workload.

        Raises:
            OptionsError: With the path below workload_config, the fault and the fix.
        """
        given = {
            key: value for key, value in config.items() if key not in _HOSTS_OWN and not key.startswith(_HOSTS_PREFIX)
        }
        check(SCHEMA, given)
        _check_words(given["argv"])
        _check_env(given.get("env", {}))
        cwd = os.path.abspath(given.get("cwd", os.curdir))
        argv = tuple(given["argv"])
        if "cwd" in given and os.sep in argv[0]:
            # The command is looked for where it starts; so its first line is read there, and it is found from here.
            argv = (os.path.normpath(os.path.join(cwd, argv[0])), *argv[1:])
        if "nproc" in given:
            argv = _ranked(argv, given["nproc"], cwd)
        return cls(
            argv,
            cwd,
            dict(given.get("env", {})),
            given.get("timeout_s"),
            frozenset(given.get("fail_on", cls.fail_on)),
            config.get("steps"),
        )


def _check_words(argv: list[str]) -> None:
    if not argv[0]:
        raise OptionsError("argv[0]", "must not be empty: it is the program to run")
    for index, word in enumerate(argv):
        if "\0" in word:
            raise OptionsError(f"argv[{index}]", "must not hold a NUL character")


def _check_env(env: Mapping[Any, Any]) -> None:
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise OptionsError("env", f"{name!r} is not a variable's name")
        if value is not None and (not isinstance(value, str) or "\0" in value):
            raise OptionsError(f"env.{name}", f"must be a string, or null to remove it, got {value!r}; quote numbers")
    if "PATH" in env:
        raise OptionsError(
            "env.PATH", "which program argv names must not depend on it; write argv[0] as a path, or use extra_env"
        )


def _ranked(argv: tuple[str, ...], nproc: int, cwd: str) -> tuple[str, ...]:
    """The command with `nproc` ranks of its Python program.

    Raises:
        OptionsError: It does not end in a script or module of this interpreter's, or Python has options that
            torchrun does not hand on.
    """
    target = Launch.of_this_process(argv, directory=cwd).target()
    if target.kind not in ("script", "module") or target.program is None:
        raise OptionsError(
            "nproc",
            f"needs argv to end in a python script or python -m module of this environment ({target.description}); "
            "write the launcher into argv instead, and leave nproc out",
        )
    start = target.program - (target.kind == "module")  # its -m
    before, program = argv[:start], argv[start:]
    # torchrun starts its ranks with -u, and with no other option.
    interpreter = before[:-1] if before[-1:] == ("-u",) else before
    is_separate = target.kind == "script" or program[0] == "-m"  # and not in one word, such as -Om
    if not (is_separate and interpreter and os.path.basename(interpreter[-1]).startswith("py")):
        raise OptionsError(
            "nproc",
            "needs the script or -m module right behind python (or python -u), since ranks get no other option of "
            "python's; set a variable such as PYTHONWARNINGS in env instead",
        )
    return (*before, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}", *program)
