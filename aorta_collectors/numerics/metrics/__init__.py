"""The line of a step: loss, throughput, gradient norm, memory, time."""
