"""Whole investigations of planted faults: the installed commands from `new` to `verify`, and what the report says."""
