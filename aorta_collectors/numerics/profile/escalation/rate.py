"""A limit on how often something may happen: so many times a second on average, in bursts of a second's worth."""

from __future__ import annotations


class TokenBucket:
    """Full at the beginning.

    Args:
        per_second: How often, which may be less than once; the bucket holds one token at least.
    """

    def __init__(self, per_second: float) -> None:
        self._per_ns = per_second / 1e9
        self._most = max(1.0, per_second)
        self._tokens = self._most
        self._filled_ns: int | None = None

    def take(self, now_ns: int) -> bool:
        """Whether it may happen now, at `now_ns` of a clock that does not go back. Counts it, if so."""
        if self._filled_ns is not None:
            self._tokens = min(self._most, self._tokens + (now_ns - self._filled_ns) * self._per_ns)
        self._filled_ns = now_ns
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
