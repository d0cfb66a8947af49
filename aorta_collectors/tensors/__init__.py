"""The tensors collector: named tensors at named points of a run, so that two runs can be compared by them."""

from aorta_collectors.tensors.observing import observe, watch_grad

__all__ = ["observe", "watch_grad"]
