"""Collectors for `aorta sweep`: a cell that asked for evidence has it, verified, or the sweep says why not.

Importing this package does nothing. The parts, in the order data flows through them: `options` reads a recipe's
collect: block, `launch` rewrites a command, `frontend` runs it with collectors armed, `observe` watches the model,
`layer_numerics` writes what was seen, `evidence` checks it, `host` joins all of that to amd-aorta.
"""

__version__ = "0.1.0"
