"""The configuration of one process, as a value: the options of a collect: block, from variables with a prefix.

Alone, a malformed variable is reported and falls back to its default: a sidecar never takes a run down. In a sweep the
same text has been validated when the recipe was loaded, and verification compares what was in force
(`Configuration.describe`) with what was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

from aorta_collectors.errors import OptionsError
from aorta_collectors.options import Options, decode
from aorta_collectors.plain_schema import PlainValidator
from aorta_collectors.schema_check import load_schema, validator

#: For a sweep alone: nobody verifies elsewhere.
ON_MISSING = "on_missing"

C = TypeVar("C", bound="Configuration")


@dataclass(frozen=True)
class Configuration:
    """What is in force. A subclass is a frozen dataclass whose fields are the options, with the schema's defaults.

    An option that is a list in the schema is a tuple here.

    Attributes:
        options_schema: JSON Schema of the options; or the name of one that is packaged with aorta_collectors.
        prefix: Before the name of each option, in upper case, is its variable: NUMERICS_TRACE for `trace`.
        warnings: What could not be taken as it was given.
    """

    options_schema: ClassVar[str | Mapping[str, Any]]
    prefix: ClassVar[str]

    _: KW_ONLY
    warnings: tuple[str, ...] = field(default=(), compare=False)

    # -- what a collector says of its own

    @property
    def asks_for_nothing(self) -> bool:
        """Whether there is nothing to observe: not a hook is set then."""
        return False

    def faults(self, given: Collection[str]) -> Iterator[tuple[str, str]]:
        """What the schema cannot say: options that cannot have the effect that they are given for, and why.

        Args:
            given: Names of those that somebody has set, rather than being as by default.
        """
        yield from ()

    # -- the same for all

    def describe(self) -> dict[str, Any]:
        """As the summary tells it, one entry an option."""
        told = {option.name: getattr(self, option.name) for option in fields(self) if option.name != "warnings"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}

    @classmethod
    def schema(cls) -> Mapping[str, Any]:
        """The schema of the options."""
        found = cls.options_schema
        return load_schema(found) if isinstance(found, str) else found

    @classmethod
    def decoded(cls, raw: Mapping[str, str] | None) -> Options:
        """A collect: block, decoded and held against the schema.

        Raises:
            OptionsError: With the name of an option, and what is wrong with it.
        """
        found = cls.options_schema
        checker: Any = validator(found) if isinstance(found, str) else PlainValidator(found, [])
        return decode(raw, cls.schema(), checker)

    @classmethod
    def validated(cls, raw: Mapping[str, str] | None) -> Options:
        """The same, and held against each other.

        Raises:
            OptionsError: Likewise.
        """
        options = cls.decoded(raw)
        for name, fault in cls.of(options.values).faults(options.values):
            raise OptionsError(name, fault)
        return options

    @classmethod
    def of(cls: type[C], values: Mapping[str, Any], warnings: tuple[str, ...] = ()) -> C:
        """From decoded options, without those that are no field, such as on_missing."""
        known = {option.name for option in fields(cls)} - {"warnings"}
        given = {name: value for name, value in values.items() if name in known}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return cls(**given, warnings=warnings)

    @classmethod
    def variables(cls) -> dict[str, str]:
        """The variable of each option that a process reads."""
        return {name: cls.prefix + name.upper() for name in cls.schema()["properties"] if name != ON_MISSING}

    @classmethod
    def from_environment(cls: type[C], environ: Mapping[str, str]) -> C:
        """From variables; each that is malformed is left out, and a warning says so."""
        values: dict[str, Any] = {}
        warnings: list[str] = []
        for name, variable in cls.variables().items():
            text = environ.get(variable)
            if text is None:
                continue
            try:
                values.update(cls.decoded({name: text}).values)
            except OptionsError as error:
                warnings.append(f"{variable}: {error.message}; the default is used")
        return cls.of(values, tuple(warnings))

    @classmethod
    def configured(cls: type[C], environ: Mapping[str, str]) -> C:
        """The same; what cannot have the effect that it is given for is among the warnings."""
        config = cls.from_environment(environ)
        variables = cls.variables()
        given = [name for name, variable in variables.items() if variable in environ]
        faults = tuple(f"{variables[name]} {fault}" for name, fault in config.faults(given))
        return replace(config, warnings=(*config.warnings, *faults))
