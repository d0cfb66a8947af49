"""How collectors share one command: ours next to the program, the host's profilers around them.

The host hands an argv through its collectors, the innermost first. A profiler that runs any command (rocprof) goes
around what we have made of it. Proton's command line runs a script, and no module, so it cannot go around our
front-end; there the front-end runs Proton, and Proton runs the script, all in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta_collectors.launch.value import Launch

#: plan(collector's name, launch before it, its artifact directory) -> launch with it. May raise LaunchError.
Plan = Callable[[str, Launch, Path], Launch]


def takes_the_script(names: tuple[str, ...], options: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether Proton will run the program's script itself, which is what it does unless told `mode: env`."""
    return "proton" in names and options.get("proton", {}).get("mode", "cli").strip().lower() == "cli"


class Wrapping:
    """One command on its way through the collectors.

    Attributes:
        launch: The command with what has been done to it so far.
    """

    def __init__(self, launch: Launch, plan: Plan, *, script_taken: bool) -> None:
        self.launch = launch
        self._plan = plan
        self._script_taken = script_taken
        self._waiting: list[tuple[str, Path]] = []

    def specs(self, registry: Mapping[str, Any], ours: Mapping[str, str]) -> dict[str, Any]:
        """The host's collectors with this command's wrapping in them.

        Args:
            registry: The host's CollectorSpec by name.
            ours: Output subdirectories of our collectors by name.
        """
        specs = dict(registry)
        for name, spec in registry.items():
            if name in ours:
                specs[name] = replace(spec, output_subdir=ours[name], wrap=self._ours(name))
            elif spec.wrap is not None:
                specs[name] = replace(spec, wrap=self._around(name, spec.wrap))
        return specs

    def _ours(self, name: str) -> Callable[..., list[str]]:
        def wrap(argv: list[str], out_dir: Path, options: Mapping[str, str], env: object = None) -> list[str]:
            self.launch = replace(self.launch, argv=tuple(argv))
            if self._script_taken:
                self._waiting.append((name, out_dir))
            else:
                self.launch = self._plan(name, self.launch, out_dir)
            return list(self.launch.argv)

        return wrap

    def _around(self, name: str, wrap: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def wrapped(*args: Any, **kwargs: Any) -> list[str]:
            self.launch = replace(self.launch, argv=tuple(wrap(*args, **kwargs)))
            if name == "proton":
                waiting, self._waiting = self._waiting, []
                for held, out_dir in waiting:
                    self.launch = self._plan(held, self.launch, out_dir)
            return list(self.launch.argv)

        return wrapped
