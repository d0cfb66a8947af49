"""Statistics and values of layers' outputs and gradients, and the stop at a bad one."""
