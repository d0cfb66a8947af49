"""Which of a module's tensors can be read. Needs no torch, so that a configuration can be checked without it."""

#: The channels in the order in which a step passes them.
CHANNELS = ("weight", "bias", "input", "act", "igrad", "wgrad", "bgrad")
