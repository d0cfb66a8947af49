"""How large the numbers are among which a tensor's rounding errors arise, where that is more than the tensor itself.

The gradient of a parameter is a sum over the batch, whose error goes with its terms and not with what they come to (N.
J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002, section 4.2). The bias of attention's
keys, or one in front of a batch norm, has a gradient that is 0 by its formula: what is recorded is rounding alone,
another one in each program. What its terms are like is seen from its layer's other gradients, such as its weight's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aorta_collectors.analysis.bundles.bundle import Bundle
from aorta_collectors.analysis.bundles.observation import Observation, observation_of

_GRADIENT = "gradient"
#: The largest finite magnitude of all gradients of a layer's parameters, by step and layer.
Scales = Mapping[tuple[int, str], float]


def scales_of(bundle: Bundle, found: Sequence[Observation], names: Sequence[str]) -> Scales:
    """Of one process.

    Args:
        found: What was read of it.
        names: If there are any, `found` has these alone.
    """
    scales: dict[tuple[int, str], float] = {}
    everything: Iterable[Observation] = map(observation_of, bundle.lines) if names else found
    for each in everything:
        if each.kind == _GRADIENT:
            key = each.step, each.layer
            scales[key] = max(scales.get(key, 0.0), each.abs_max or 0.0)
    return scales


def scale_of(observation: Observation, scales: Scales) -> float:
    """That of its layer, of a parameter's gradient; 0, which says nothing, of anything else."""
    is_gradient = observation.kind == _GRADIENT
    return scales.get((observation.step, observation.layer), 0.0) if is_gradient else 0.0
