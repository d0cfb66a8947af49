"""`Launch`: argv, environment and how collectors get into it. Pure values; nothing here starts a process."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from aorta_collectors.environment import ARM_VARIABLE, bootstrap_directory, children_can_arm
from aorta_collectors.errors import LaunchError
from aorta_collectors.launch.names import package_directories
from aorta_collectors.launch.parse import find_target
from aorta_collectors.launch.passing import Passed
from aorta_collectors.launch.target import Target

_OURS = "aorta_collectors"


@dataclass(frozen=True)
class Launch:
    """What is going to run.

    Attributes:
        argv: The command; empty for a workload that runs inside the host's process.
        env: Variables to set; None removes one. Everything else is inherited.
        route: "unchanged", "front-end" (argv was rewritten), "environment" (children arm themselves at start-up) or
            "in-process".
        note: What the command ends in, or why this route. It begins with "arming is impossible" where that is certain.
        interpreter: The interpreter that has aorta_collectors installed. Another one, or a launcher that is not its
            own, may belong to another environment and takes the environment route.
        python_path: The user's own PYTHONPATH.
        directory: Where the command is started.
        users: Variables of `env` that are the user's, and not set anew since. Unlike a collector's they are not passed
            into containers.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    route: str = "unchanged"
    note: str = ""
    interpreter: str = ""
    python_path: str = ""
    directory: str = os.curdir
    users: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))

    @classmethod
    def of_this_process(
        cls, argv: Sequence[str], env: Mapping[str, str | None] | None = None, directory: str = os.curdir
    ) -> Launch:
        """The launch of a command by this process, with its interpreter and environment.

        Args:
            env: Variables that the user wants set for the command, or removed (None).
            directory: Where it is started, if not in this process's own directory.
        """
        env = env or {}
        path = env.get("PYTHONPATH", os.environ.get("PYTHONPATH")) or ""
        return cls(
            tuple(argv),
            env,
            interpreter=sys.executable or "",
            python_path=path,
            directory=directory,
            users=frozenset(env),
        )

    def without_absent(self, environ: Mapping[str, str]) -> Launch:
        """The launch without orders to remove variables that `environ` does not have."""
        return replace(self, env={key: value for key, value in self.env.items() if value is not None or key in environ})

    def with_env(self, env: Mapping[str, str | None]) -> Launch:
        return replace(self, env={**self.env, **env}, users=self.users - set(env))

    def target(self) -> Target:
        """The Python program at the end of argv's launchers, or why there is none to be seen."""
        changed = {**os.environ, **self.env}
        environ = {name: value for name, value in changed.items() if value is not None}
        return find_target(self.argv, self.interpreter, environ, self.directory)

    def armed_with(self, function: str, writes: Path | None = None, reads: Sequence[Path] = ()) -> Launch:
        """The launch with `function` called in its Python processes once they have imported torch.

        The front-end takes the program's place in argv where argv ends in a Python target; anything else runs as it is.
        Either way Python processes further down arm themselves through the environment. Where a launcher keeps
        variables or directories from the program, as a container does, words that pass them are added: exactly the
        variables of this launch. So this comes last, when `with_env` has set them all.

        Args:
            function: "module:function"; it takes the directory in which the process was started.
            writes: Directory of the evidence, which a container must be able to write to.
            reads: Further files that the collector opens in the program, where there are any.

        Raises:
            LaunchError: No evidence can come of such a launch; the message says what to do.
        """
        armed = self.with_env({ARM_VARIABLE: " ".join(filter(None, (self.env.get(ARM_VARIABLE), function)))})
        if self.route == "in-process":
            return armed
        target = self.target()
        if target.refused:
            raise LaunchError(target.refused)
        if target.contained and function.partition(".")[0] != _OURS:
            raise LaunchError(f"{function} is not there in the container, into which {_OURS} alone is mounted")
        # Also behind the front-end: what the program starts itself (multiprocessing, subprocess) arms itself as well.
        armed = armed.through_environment(_note(target))
        argv = list(self.argv)
        if target.insert_at is not None:
            if target.found and target.program is not None:
                argv[target.program] = target.found
            argv[target.insert_at : target.insert_at] = target.front
        if target.insert_at is not None or target.kind == "front-end":
            armed = replace(armed, route="front-end", note=self.note or armed.note)
        return armed._passed(argv, target, writes, reads)

    def _passed(self, argv: list[str], target: Target, writes: Path | None, reads: Sequence[Path]) -> Launch:
        """The launch with `argv`, in which words have been put that pass on what launchers would keep back."""
        passed = Passed(
            {name: value for name, value in self.env.items() if value is not None and name not in self.users},
            (*package_directories(), *map(str, reads)),
            () if writes is None else (str(writes),),
            rewritten=self.route == "front-end",
        )
        for cut in target.cuts:
            prefixed = cut.environment(passed)
            passed = replace(passed, variables={**passed.variables, **prefixed})
        for cut in reversed(target.cuts):
            argv[cut.at : cut.at] = cut.words(passed)
        return replace(self, argv=tuple(argv), env={**self.env, **passed.variables})

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


def _note(target: Target) -> str:
    """For people: what was found, and what follows from it."""
    if target.unarmed:
        return f"arming is impossible: {target.unarmed}"
    if target.insert_at is None and target.kind == "opaque":
        if not children_can_arm():
            return (
                f"arming is impossible: {bootstrap_directory()} has a {os.pathsep!r} in it, which PYTHONPATH cannot "
                f"hold ({target.description})"
            )
        if target.contained:
            return f"{target.description}; if the image sets PYTHONPATH, it is replaced"
    return target.description
