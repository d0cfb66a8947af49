"""Reading and comparing what the collectors tensors and memory left: bundles, and what two runs have in common."""

from aorta_collectors.analysis.bundles.bundle import Bundle, bundles_in, bundles_of
from aorta_collectors.analysis.bundles.compare import compare
from aorta_collectors.analysis.bundles.criterion import Criterion
from aorta_collectors.analysis.bundles.growth import Growth, growth
from aorta_collectors.analysis.bundles.memory_compare import MemoryComparison, compare_memory
from aorta_collectors.analysis.bundles.memory_run import MemoryRun, memory_runs_in, memory_runs_of
from aorta_collectors.analysis.bundles.ranks import RankComparison, compare_ranks
from aorta_collectors.analysis.bundles.result import TensorComparison
from aorta_collectors.analysis.bundles.series import Series, series

__all__ = [
    "Bundle",
    "Criterion",
    "Growth",
    "MemoryComparison",
    "MemoryRun",
    "RankComparison",
    "Series",
    "TensorComparison",
    "bundles_in",
    "bundles_of",
    "compare",
    "compare_memory",
    "compare_ranks",
    "growth",
    "memory_runs_in",
    "memory_runs_of",
    "series",
]
