"""Reads tensors for observations: at once in host memory, from a device when their copies have arrived.

No tensor of the program's is held. One that is observed twice is read twice, also where nothing seems to have changed
it since: what writes to memory without telling torch is one of the things that are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from aorta_collectors.observe.host_copies import Arrival, HostCopies
from aorta_collectors.observe.host_stats import HostStats
from aorta_collectors.observe.makers import computed_infinity
from aorta_collectors.observe.readable import plain_values
from aorta_collectors.tensors.config import Config
from aorta_collectors.tensors.digest import digest_of
from aorta_collectors.tensors.elements import Elements
from aorta_collectors.tensors.observation import Observation

IN_CAPTURE = "in the capture of a CUDA graph"


class Reader:
    """Not to be used by several threads at once, nor where a mode of the program is on.

    Args:
        found_bad: Told of observations that are not finite, as soon as that is known.

    Attributes:
        in_flight_bytes: Of copies that have not been looked at.
    """

    def __init__(self, config: Config, copies: HostCopies, found_bad: Callable[[Observation], None]) -> None:
        self._config = config
        self._copies = copies
        self._found_bad = found_bad
        self._stats = HostStats()
        self._kept_bytes = 0
        self.in_flight_bytes = 0

    def read(self, observation: Observation, tensor: Tensor, elements: Elements) -> None:
        """Read a tensor now, or see to it that it can be read later, as it is now."""
        source = elements.numbers if elements.exact is None else elements.exact
        if self._config.keeps_values:
            self._decide(observation, elements)
        if source is None:
            return
        at_hand = self._copies.is_at_hand(source)
        if at_hand and not observation.keeps:
            self._look(observation, elements.exact, elements.numbers, tensor)
            return
        copied = self._copies.copy(source)
        if copied is None:  # a capture has begun since anybody asked
            observation.unread, observation.keeps = IN_CAPTURE, False
            return
        if at_hand:
            self._look(observation, copied, None, tensor)
        else:
            # When -Inf are known of, the tensor is gone.
            observation.is_mask = _may_be_mask(observation, tensor)
            self.in_flight_bytes += source.numel() * source.element_size()
        observation.values = copied

    def seal(self) -> Arrival:
        """What is behind all that was read since the last seal."""
        return self._copies.seal()

    def look_at(self, observations: Sequence[Observation]) -> None:
        """Read copies that have arrived."""
        for observation in observations:
            copied = observation.values
            if copied is not None and observation.stats is None and observation.digest is None:
                self.in_flight_bytes -= copied.numel() * copied.element_size()
                if observation.unread is None:
                    self._look(observation, copied, None, None)
                else:
                    self._look(observation, None, copied, None)
            if not observation.keeps:
                observation.values = None

    def _decide(self, observation: Observation, elements: Elements) -> None:
        """Whether the values of a tensor are kept."""
        if elements.exact is None:
            observation.left_out = elements.reason
            return
        size = elements.exact.numel() * elements.exact.element_size()
        if self._kept_bytes + size > self._config.max_bytes:
            observation.left_out = "max_bytes"
        else:
            self._kept_bytes += size
            observation.keeps = True

    def _look(
        self, observation: Observation, exact: Tensor | None, numbers: Tensor | None, tensor: Tensor | None
    ) -> None:
        """What is to be known of values in host memory.

        Args:
            tensor: They are its values; None where it is gone.
        """
        if exact is not None:
            observation.digest = digest_of(exact)
            if numbers is None:
                numbers, _ = plain_values(exact)
        if numbers is not None:
            observation.stats = self._stats.read(numbers, None)
            if observation.stats.only_negative_infinite and tensor is not None:
                observation.is_mask = _may_be_mask(observation, tensor)
        if observation.is_bad:
            self._found_bad(observation)


def _may_be_mask(observation: Observation, tensor: Tensor) -> bool:
    """Whether -Inf alone would be no fault of it: they are where somebody puts them, unless they are known as computed.

    Those in a parameter, or in a gradient, nobody puts there.
    """
    return observation.subject.kind in ("input", "output", "user") and computed_infinity(tensor) is not True
