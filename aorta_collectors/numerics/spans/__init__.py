"""Spans as values, as lines, and for other tools: identifiers, clocks, timelines, receivers."""
