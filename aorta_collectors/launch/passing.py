"""Launchers that keep variables or directories from the program, and the words by which those get through.

Each `Cut` is such a launcher in a command. Exactly the collector's variables are passed, nothing else of the host's
environment. Words are only added, behind the user's own: there the last one counts.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from aorta_collectors.environment import bootstrap_directory
from aorta_collectors.errors import LaunchError
from aorta_collectors.launch.row import Reading

_PYTHON_PATH = "PYTHONPATH"


@dataclass(frozen=True)
class Passed:
    """What is to reach the program.

    Attributes:
        variables: By name.
        reads: Directories and files that are needed in a container, at the same place.
        writes: The same, to be written to.
        rewritten: The program goes through the front-end, which arms children from within.
    """

    variables: Mapping[str, str]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    rewritten: bool = False


@dataclass(frozen=True)
class Cut(ABC):
    """A launcher that keeps something from the program.

    Attributes:
        at: Index in argv at which words can be put in.
    """

    at: int

    @abstractmethod
    def words(self, passed: Passed) -> list[str]:
        """What has to be put in at `at`; nothing where all gets through."""

    def environment(self, passed: Passed) -> Mapping[str, str]:
        """What the launcher itself must find in its environment, in order to pass it on."""
        return {}

    def loses(self, name: str) -> bool:
        """Whether a variable does not get through without further words."""
        return False


@dataclass(frozen=True)
class Environment(Cut):
    """env(1) with -i, with -u, or with assignments of variables that the collector needs."""

    cleared: bool = False
    removed: frozenset[str] = frozenset()
    assigned: Mapping[str, str] = field(default_factory=dict)

    def loses(self, name: str) -> bool:
        return self.cleared or name in self.removed or name in self.assigned

    def words(self, passed: Passed) -> list[str]:
        lost = {name: value for name, value in passed.variables.items() if self.loses(name)}
        return [f"{name}={value}" for name, value in sorted(_differing(lost, self.assigned).items())]


@dataclass(frozen=True)
class ExportList(Cut):
    """srun with a list of the variables that tasks see, or with none."""

    listed: str = ""

    def words(self, passed: Passed) -> list[str]:
        entries = [] if self.listed in ("NONE", "NIL") else self.listed.split(",")
        more = _entries(passed, entries, all_pass="ALL" in entries)
        return [f"--export={','.join([*entries, *more])}"] if more else []


@dataclass(frozen=True)
class ExportWords(Cut):
    """mpirun: Open MPI's passes no variables to other machines but those of -x, and that one is used tells which mpirun
    it is. Hydra's has -env and -genv."""

    listed: tuple[str, ...] = ()
    assigned: Mapping[str, str] = field(default_factory=dict)

    def words(self, passed: Passed) -> list[str]:
        words = [word for name in _entries(passed, self.listed, not self.listed) for word in ("-x", name)]
        given = {name: value for name, value in passed.variables.items() if name in self.assigned}
        for name, value in sorted(_differing(given, self.assigned).items()):
            words += ["-env", name, value]
        return words


@dataclass(frozen=True)
class DockerContainer(Cut):
    """docker run and podman run: an environment of the image's own, and its file system."""

    assigned: Mapping[str, str] = field(default_factory=dict)
    mounted: frozenset[str] = frozenset()

    def loses(self, name: str) -> bool:
        return True

    def words(self, passed: Passed) -> list[str]:
        # An image's own PYTHONPATH cannot be known here. The front-end keeps it, and puts its part before it for the
        # program's children. Where there is no front-end, evidence is worth more than what the image has there, which
        # is seldom anything; the note says so.
        kept = (_PYTHON_PATH,) if passed.rewritten else ()
        wanted = {name: value for name, value in passed.variables.items() if name not in kept}
        words = []
        for name, value in sorted(_differing(wanted, self.assigned).items()):
            words += ["-e", f"{name}={value}"]
        return [*words, *_mounts("--volume", passed, self.mounted, ":")]


@dataclass(frozen=True)
class ApptainerContainer(Cut):
    """apptainer exec: the host's variables unless --cleanenv, some of the host's directories.

    Variables go by its own prefixes, since --env splits a value at its commas, and a spec is full of them. A
    PYTHONPATH that the user gives with --env goes before those, though.
    """

    assigned: Mapping[str, str] = field(default_factory=dict)
    mounted: frozenset[str] = frozenset()

    def words(self, passed: Passed) -> list[str]:
        given = {name: value for name, value in passed.variables.items() if name in self.assigned}
        differing = {} if passed.rewritten else _differing(given, self.assigned)
        words = ["--env", f"{_PYTHON_PATH}={differing[_PYTHON_PATH]}"] if _PYTHON_PATH in differing else []
        return [*words, *_mounts("--bind", passed, self.mounted, ":,")]

    def environment(self, passed: Passed) -> Mapping[str, str]:
        prefixes = ("APPTAINERENV_", "SINGULARITYENV_")
        # Those of an earlier collector are there already, and become this one's.
        names = [name for name in passed.variables if not name.startswith(prefixes)]
        if passed.rewritten:
            names = [name for name in names if name != _PYTHON_PATH]
        return {f"{prefix}{name}": passed.variables[name] for name in names for prefix in prefixes}


def _differing(wanted: Mapping[str, str], assigned: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that are wanted to which the command's own words do not give the value already."""
    wanted = dict(wanted)
    if _PYTHON_PATH in wanted:
        wanted[_PYTHON_PATH] = _in_front(assigned.get(_PYTHON_PATH, ""))
    return {name: value for name, value in wanted.items() if assigned.get(name) != value}


def _mounts(option: str, passed: Passed, mounted: frozenset[str], separators: str) -> list[str]:
    """Words that mount each path at the same place in a container, what is only read without the right to write."""
    words = []
    for path in (*passed.reads, *passed.writes):
        if path not in mounted:
            mount = f"{_mountable(path, separators)}:{path}"
            words += [option, mount if path in passed.writes else f"{mount}:ro"]
    return words


def _entries(passed: Passed, listed: Sequence[str], all_pass: bool) -> list[str]:
    """What a list of variables lacks: NAME, whose value is that of the environment, or NAME=value; the last one counts.

    Args:
        all_pass: What is not listed gets through as well.
    """
    last = {entry.partition("=")[0]: entry for entry in listed}
    more = []
    for name in sorted(passed.variables):
        entry = last.get(name)
        if entry is None and all_pass:
            continue
        wanted = name
        if entry is not None and "=" in entry and name == _PYTHON_PATH:
            wanted = f"{name}={_in_front(entry.partition('=')[2])}"
        if entry != wanted:
            more.append(wanted)
    return more


def _in_front(users: str) -> str:
    """PYTHONPATH with the directory that arms children before the user's own."""
    site = bootstrap_directory()
    return users if users.split(os.pathsep)[0] == site else os.pathsep.join(filter(None, (site, users)))


def _mountable(path: str, separators: str) -> str:
    if any(mark in path for mark in separators):
        raise LaunchError(f"{path} cannot be mounted into a container, since it has one of {separators} in its name")
    return path


def _environment(read: Reading, _: Mapping[str, str]) -> Cut | None:
    removed = frozenset(value for option in read.all_of("-u", "--unset") for value in option.values)
    cleared = read.has("-i", "--ignore-environment", "-")
    found = Environment(read.program, cleared, removed, dict(read.assignments))
    return found if found.cleared or found.removed or found.assigned else None


def _export_list(read: Reading, environ: Mapping[str, str]) -> Cut | None:
    given = [option.values[0] for option in read.all_of("--export") if option.values]
    listed = given[-1] if given else environ.get("SLURM_EXPORT_ENV", "")
    return ExportList(read.options_end, listed) if listed else None


def _export_words(read: Reading, _: Mapping[str, str]) -> Cut | None:
    listed: list[str] = []
    for value in (value for option in read.all_of("-x") for value in option.values):
        listed += [value] if "=" in value else value.split(",")
    assigned = {option.values[0]: option.values[1] for option in read.all_of("-genv", "-env") if len(option.values) > 1}
    return ExportWords(read.options_end, tuple(listed), assigned) if listed or assigned else None


def _docker(read: Reading, _: Mapping[str, str]) -> Cut | None:
    pairs = [value.partition("=") for option in read.all_of("-e", "--env") for value in option.values]
    assigned = {name.lstrip("="): value for name, equals, value in pairs if equals}
    mounted = {_volume_target(value) for option in read.all_of("-v", "--volume") for value in option.values}
    for option in read.all_of("--mount"):
        keys = dict(part.partition("=")[::2] for value in option.values for part in value.split(","))
        mounted |= {keys[key] for key in ("target", "destination", "dst") if key in keys}
    return DockerContainer(read.options_end, assigned, frozenset(mounted))


def _apptainer(read: Reading, _: Mapping[str, str]) -> Cut | None:
    binds = [bind for option in read.all_of("-B", "--bind") for value in option.values for bind in value.split(",")]
    given = [pair for option in read.all_of("--env") for value in option.values for pair in value.split(",")]
    assigned = {name: value for name, equals, value in (pair.partition("=") for pair in given) if equals}
    return ApptainerContainer(read.options_end, assigned, frozenset(_volume_target(bind) for bind in binds))


def _volume_target(volume: str) -> str:
    parts = volume.split(":")
    return parts[1] if len(parts) > 1 else parts[0]


#: By the name of the launcher's row: what it keeps back, as its own words say.
CUTS: Mapping[str, Callable[[Reading, Mapping[str, str]], Cut | None]] = MappingProxyType(
    {
        "env": _environment,
        "srun": _export_list,
        "mpirun": _export_words,
        "docker run": _docker,
        "podman run": _docker,
        "apptainer exec": _apptainer,
    }
)
