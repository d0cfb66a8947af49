"""Names shared by the sweep's side, which must not import torch, and the observed program's."""

from aorta_collectors.observe.process.names import ProcessNames

#: Before the name of each option, in upper case, is its variable: NUMERICS_TRACE for `trace`.
PREFIX = "NUMERICS_"
DIRECTORY_VARIABLE = "NUMERICS_DIR"
#: Set by a sweep: the trial whose evidence a process writes.
RUN_ID_VARIABLE = "NUMERICS_RUN_ID"
DEFAULT_DIRECTORY = "numerics_out"
PROCESS = ProcessNames("spans", RUN_ID_VARIABLE, DIRECTORY_VARIABLE, DEFAULT_DIRECTORY)
ARM_FUNCTION = "aorta_collectors.numerics.arming:arm"
#: Of a program that `on_bad: stop` has ended; no other tool of this field uses it.
EXIT_STOPPED = 86
