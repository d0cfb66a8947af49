"""Which names a run has observed, and single observations of a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aorta_collectors.analysis.bundles.bundle import Bundle
from aorta_collectors.analysis.bundles.compare import is_named, observed
from aorta_collectors.analysis.bundles.observation import Observation
from aorta_collectors.errors import ArtifactError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Name:
    """One name in one process.

    Attributes:
        forms: dtype and shape of its tensors, each once.
        nonfinite: Observations with NaN or Inf.
        kept: Observations whose values were kept.
    """

    process: str
    name: str
    kind: str
    module_type: str
    forms: list[str]
    observations: int
    first_step: int
    last_step: int
    nonfinite: int
    kept: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Listing:
    """The names of some processes, and what could not be read."""

    names: Sequence[Name]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return {"names": [each.to_json() for each in self.names], "notes": list(self.notes)}


def listed(bundles: Sequence[Bundle], names: Sequence[str] = ()) -> Listing:
    """Each process's names, in the order in which they were first observed.

    Raises:
        ArtifactError: Lines cannot be read.
    """
    notes: list[str] = []
    found: list[Name] = []
    for bundle in bundles:
        of_bundle: dict[str, Name] = {}
        for each in observed(bundle, names, notes):
            form = f"{each.dtype} {each.shape}"
            known = of_bundle.setdefault(
                each.name,
                Name(bundle.label, each.name, each.kind, each.module_type, [], 0, each.step, each.step, 0, 0),
            )
            if form not in known.forms:
                known.forms.append(form)
            known.observations += 1
            known.last_step = max(known.last_step, each.step)
            known.nonfinite += bool(each.nan_count or each.inf_count)
            known.kept += each.file is not None
        found += of_bundle.values()
        if not of_bundle and not names:  # its own warnings say why, such as a scope that no module matches
            notes += [f"{bundle.label}: {warning}" for warning in bundle.manifest["warnings"]]
    return Listing(found, notes)


@dataclass(frozen=True)
class Found:
    """One observation, and the process that made it."""

    bundle: Bundle
    observation: Observation

    def values(self) -> Tensor:
        """Raises ArtifactError."""
        return self.bundle.values(self.observation)

    def to_json(self, with_values: bool) -> dict[str, Any]:
        """Plain JSON; NaN and infinities, and complex numbers, are text."""
        found = {**self.bundle.to_json(), **self.observation.to_json()}
        if with_values:
            found["values"] = _plain(self.values().tolist())
        return found


def found(bundles: Sequence[Bundle], name: str, invocation: int | None = None) -> list[Found]:
    """Observations of a name, or of a pattern of names, in the order of processes and of observation.

    Args:
        invocation: This one alone.

    Raises:
        ArtifactError: There is none, or lines cannot be read.
    """
    kept = [
        Found(bundle, each)
        for bundle in bundles
        for each in bundle.observations()
        if is_named(each.name, (name,)) and invocation in (None, each.invocation)
    ]
    if not kept:
        which = "" if invocation is None else f" with invocation {invocation}"
        raise ArtifactError(
            f"there is no observation {name!r}{which}; `aorta-collectors tensors list` says what there is"
        )
    return kept


def _plain(values: Any) -> Any:
    if isinstance(values, list):
        return [_plain(each) for each in values]
    if isinstance(values, complex):
        return str(values)
    # NaN is not itself, and infinities are no less than each other.
    return str(values) if isinstance(values, float) and values - values != 0 else values
