"""What is followed: one named tensor of the batch, and where it is read again."""

from __future__ import annotations

from dataclasses import dataclass

from aorta_collectors.observe.watch import WatchGroup


@dataclass(frozen=True)
class FollowEntry:
    """One named tensor of the batch. It is always read where the batch enters the root.

    Attributes:
        tensor: Attribute or key of the batch; names a tensor, a KeyedJaggedTensor, or lists and mappings of them.
        stages: Also read at the stages of torchrec's training pipeline.
        side_stream: Read at the stages on a stream of its own, where there are streams.
        modules: Also read after the calls of these modules; its stride counts their calls within a step, its channels
            mean nothing.
        bounds: Allowed range [low, high] in the tensor's own unit.
    """

    tensor: str
    stages: bool = True
    side_stream: bool = False
    modules: WatchGroup | None = None
    bounds: tuple[float, float] | None = None
