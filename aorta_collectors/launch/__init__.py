"""A command as a value, and its rewriting so that a collector is armed in the Python processes it starts."""

from aorta_collectors.launch.value import Launch

__all__ = ["Launch"]
