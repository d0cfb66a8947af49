"""Names shared by the sweep's side, which must not import torch, and the observed program's."""

from aorta_collectors.observe.process.names import ProcessNames

#: Before the name of each option, in upper case, is its variable: MEMORY_DETAIL for `detail`.
PREFIX = "MEMORY_"
DIRECTORY_VARIABLE = "MEMORY_DIR"
#: Set by a sweep: the trial whose evidence a process writes.
RUN_ID_VARIABLE = "MEMORY_RUN_ID"
DEFAULT_DIRECTORY = "memory_out"
PROCESS = ProcessNames("memory", RUN_ID_VARIABLE, DIRECTORY_VARIABLE, DEFAULT_DIRECTORY)
ARM_FUNCTION = "aorta_collectors.memory.arming:arm"
OPTIONS_SCHEMA = "memory.options"
#: Of a step; what the program itself names is beside them.
POINTS = ("before_forward", "after_forward", "after_backward", "after_step")
