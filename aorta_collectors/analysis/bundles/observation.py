"""One tensor at one point, as a line of tensors_<stem>.jsonl tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

FORWARD, BACKWARD, UPDATE, USER = "forward", "backward", "update", "user"
DIRECTIONS = (FORWARD, BACKWARD, UPDATE, USER)
_DIRECTION_OF: Mapping[str, str] = MappingProxyType(
    {
        "input": FORWARD,
        "output": FORWARD,
        "output_gradient": BACKWARD,
        "gradient": BACKWARD,
        "user_gradient": BACKWARD,
        "parameter": UPDATE,
        "user": USER,
    }
)

#: What makes two observations the same one in two runs of a rank: name and invocation.
Key = tuple[str, int]


class Observation(NamedTuple):
    """The fields are those of schemas/tensors.observation.json; a tuple, since there may be very many of them."""

    rank: int
    step: int
    order: int
    name: str
    invocation: int
    point: str
    layer: str
    module_type: str
    kind: str
    tensor_path: str
    dtype: str
    shape: list[int]
    device: str
    numel: int
    digest: str | None
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    nan_count: int
    inf_count: int
    file: str | None
    key: str | None
    left_out: str | None
    graph: int | None
    replay: int | None
    compiled: bool
    unread: str | None

    @property
    def identity(self) -> Key:
        return self.name, self.invocation

    @property
    def direction(self) -> str:
        """Of the part of a step that makes it: the forward pass, the backward pass, or the optimizer's update."""
        return _DIRECTION_OF[self.kind]

    @property
    def has_statistics(self) -> bool:
        """Whether its elements were looked at: of those that were, some are finite, or some are not."""
        return not self.numel or self.min is not None or bool(self.nan_count or self.inf_count)

    @property
    def abs_max(self) -> float | None:
        """Largest finite magnitude; None where nothing is finite."""
        return None if self.min is None or self.max is None else max(abs(self.min), abs(self.max))

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


_fields = itemgetter(*Observation._fields)


def observation_of(line: Mapping[str, Any]) -> Observation:
    """Of a line that is to the schema."""
    return Observation._make(_fields(line))
