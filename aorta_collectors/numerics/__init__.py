"""The numerics collector: where time is spent, and whether the statistics of each layer are sane."""

from aorta_collectors.numerics.marker import step

__all__ = ["step"]
