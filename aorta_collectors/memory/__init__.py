"""The memory collector: how much memory a process holds at the points of its model's steps, and who took it."""

from aorta_collectors.memory.marker import point

__all__ = ["point"]
