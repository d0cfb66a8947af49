"""`Launch`: argv, environment and how collectors get into it. Pure values; nothing here starts a process."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from aorta_collectors.environment import ARM_VARIABLE, bootstrap_directory
from aorta_collectors.launch.parse import Target, find_target

FRONTEND_MODULE = "aorta_collectors.frontend"


@dataclass(frozen=True)
class Launch:
    """What is going to run.

    Attributes:
        argv: The command; empty for a workload that runs inside the host's process.
        env: Variables to set; None removes one. Everything else is inherited.
        route: "unchanged", "front-end" (argv was rewritten), "environment" (children arm themselves at start-up) or
            "in-process".
        note: Why this route.
        interpreter_dir: Directory of the interpreter that has aorta_collectors installed. A launcher found elsewhere
            may belong to another environment and takes the environment route.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    route: str = "unchanged"
    note: str = ""
    interpreter_dir: str = ""
    python_path: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))

    @classmethod
    def of_this_process(cls, argv: Sequence[str]) -> Launch:
        """The launch of a command by this process, with its interpreter and environment."""
        path = os.environ.get("PYTHONPATH", "")
        return cls(tuple(argv), interpreter_dir=os.path.dirname(sys.executable), python_path=path)

    def without_absent(self, environ: Mapping[str, str]) -> Launch:
        """The launch without orders to remove variables that `environ` does not have."""
        return replace(self, env={key: value for key, value in self.env.items() if value is not None or key in environ})

    def with_env(self, env: Mapping[str, str | None]) -> Launch:
        return replace(self, env={**self.env, **env})

    def target(self) -> Target:
        """The Python program at the end of argv's launchers, or why there is none to be seen."""
        return find_target(self.argv, self.interpreter_dir)

    def armed_with(self, function: str) -> Launch:
        """The launch with `function` called in its Python processes once they have imported torch.

        `function` is "module:function" and takes the directory in which the process was started.

        The front-end takes the program's place in argv where argv ends in a Python target; anything else runs as it is.
        Either way Python processes further down arm themselves through the environment.
        """
        armed = self.with_env({ARM_VARIABLE: " ".join(filter(None, (self.env.get(ARM_VARIABLE), function)))})
        if self.route == "in-process" or FRONTEND_MODULE in self.argv:
            return armed
        target = self.target()
        # Also behind the front-end: what the program starts itself (multiprocessing, subprocess) arms itself as well.
        armed = armed.through_environment(target.description)
        if target.insert_at is not None:
            return armed.with_module(FRONTEND_MODULE, target.insert_at, target.description)
        return armed

    def with_module(self, module: str, insert_at: int, note: str) -> Launch:
        """The launch with "-m module" before the Python program, which then becomes the module's to run."""
        argv = (*self.argv[:insert_at], "-m", module, *self.argv[insert_at:])
        return replace(self, argv=argv, route="front-end", note=note)

    def through_environment(self, note: str) -> Launch:
        path = os.pathsep.join(filter(None, (bootstrap_directory(), self.python_path)))
        return replace(self.with_env({"PYTHONPATH": path}), route="environment", note=note)

    def shell_text(self) -> str:
        """The launch as one line for a POSIX shell."""
        removed = [f"-u {shlex.quote(name)}" for name, value in self.env.items() if value is None]
        words = [
            f"{shlex.quote(name)}={shlex.quote(value)}" for name, value in sorted(self.env.items()) if value is not None
        ]
        # A shell takes NAME=value before a command only where NAME is an identifier; env takes any.
        odd = any(not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in self.env)
        prefix = ["env", *removed] if removed or odd else []
        return " ".join([*prefix, *words, shlex.join(self.argv)]).strip()
