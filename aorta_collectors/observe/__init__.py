"""Watching a PyTorch model: roots, names, hooks, reductions and the step clock.

Everything here runs inside the observed program and needs torch alone. It knows nothing of recipes, sweeps or
NANLOG_*: a collector hands an `Observer` its watch groups and a sink, and gets observations step by step.
"""
