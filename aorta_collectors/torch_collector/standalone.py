"""The options of `python -m aorta_collectors.COLLECTOR`: those of the collect: block, a directory, and its own."""

from __future__ import annotations

import functools
import os
import textwrap
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from aorta_collectors.errors import OptionsError
from aorta_collectors.frontend.standalone import Standalone
from aorta_collectors.observe.process.names import ProcessNames
from aorta_collectors.observe.process.standalone import StandaloneLaunch
from aorta_collectors.torch_collector.configuration import Configuration

C = TypeVar("C", bound=Configuration)


class OwnOption(NamedTuple):
    """An option that is none of the collect: block's.

    Attributes:
        take: Takes its value. Raises ValueError for one that it cannot take.
        needs: What is said of it where it has no value, such as "a file".
        help: What it is for.
    """

    take: Callable[[str], None]
    needs: str
    help: str


class CommandLine(Generic[C]):
    """One call of the command.

    Args:
        config: The collector's options; each is an option here, but for on_missing.
        about: What it does, and what it leaves where: the first paragraph of --help.
        example: Arguments behind the command's name.
        other_names: Options that are not called as in a recipe, by name there: {"trace": "--trace-level"}.
        own: Options of its own.
        synopsis: The options as usage lines show them.
        begin: Called with what is in force before anything is armed, and before the launch has an identity. Raises
            ValueError for options that cannot be together.
        began: Called when it has one.
    """

    def __init__(
        self,
        config: type[C],
        process: ProcessNames,
        arm_function: str,
        *,
        about: str,
        example: str,
        other_names: Mapping[str, str] | None = None,
        own: Mapping[str, OwnOption] | None = None,
        synopsis: str = "[--dir DIRECTORY] [--OPTION VALUE ...]",
        begin: Callable[[C], None] = lambda config: None,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._process = process
        self._arm_function = arm_function
        self._about = about
        self._example = example
        named = other_names or {}
        self._variables = config.variables()
        self._options = {name: named.get(name, "--" + name.replace("_", "-")) for name in self._variables}
        self._own = {"--dir": OwnOption(self._take_directory, "a directory", "Where to write."), **(own or {})}
        self._synopsis = synopsis
        self._on_begin = begin
        self._began = began
        self._given: list[str] = []

    def standalone(self) -> Standalone:
        """What the front-end needs to know of it."""
        options: dict[str, Callable[[str], None]] = {
            option: functools.partial(self._take, name) for name, option in self._options.items()
        }
        return Standalone(
            arm_function=self._arm_function,
            options={**options, **{option: own.take for option, own in self._own.items()}},
            needs={option: own.needs for option, own in self._own.items()},
            synopsis=self._synopsis,
            help=self._help(),
            begin=self._begin,
        )

    def _take(self, name: str, text: str) -> None:
        try:
            self._config.decoded({name: text})
        except OptionsError as error:
            raise ValueError(f"{self._options[name]} {error.message}") from None
        os.environ[self._variables[name]] = text
        self._given.append(name)

    def _take_directory(self, text: str) -> None:
        os.environ[self._process.directory_variable] = text

    def _begin(self) -> None:
        config = self._config.from_environment(os.environ)
        for name, fault in config.faults(self._given):
            if name in self._given:
                raise ValueError(f"{self._options[name]}: {fault}")
        self._on_begin(config)
        StandaloneLaunch.begin(os.environ, self._process.run_id_variable)
        self._began()

    def _help(self) -> str:
        """The options, a paragraph each, between what it is and an example."""
        process = self._process
        where = f"--dir, or {process.directory_variable} (default {process.default_directory})"
        about = f"{self._about} Files go to {where}. Options set {self._config.prefix}* variables, which may be set"
        properties = self._config.schema()["properties"]
        texts = {option: properties[name]["description"] for name, option in self._options.items()}
        lines = [*textwrap.wrap(f"{about} instead.", 118), ""]
        for option, text in {**texts, **{option: own.help for option, own in self._own.items()}}.items():
            lines.append(f"  {option}")
            lines += textwrap.wrap(text, 110, initial_indent="      ", subsequent_indent="      ")
        return "\n".join([*lines, "", f"example: COMMAND {self._example}"]) + "\n"
