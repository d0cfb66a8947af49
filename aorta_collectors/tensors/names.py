"""Names shared by the sweep's side, which must not import torch, and the observed program's."""

from aorta_collectors.observe.process.names import ProcessNames

#: Before the name of each option, in upper case, is its variable: TENSORS_POINTS for `points`.
PREFIX = "TENSORS_"
DIRECTORY_VARIABLE = "TENSORS_DIR"
#: Set by a sweep: the trial whose evidence a process writes.
RUN_ID_VARIABLE = "TENSORS_RUN_ID"
DEFAULT_DIRECTORY = "tensors_out"
PROCESS = ProcessNames("tensors", RUN_ID_VARIABLE, DIRECTORY_VARIABLE, DEFAULT_DIRECTORY)
ARM_FUNCTION = "aorta_collectors.tensors.arming:arm"

BEFORE_FORWARD = "before_forward"
AFTER_FORWARD = "after_forward"
AFTER_BACKWARD = "after_backward"
AFTER_STEP = "after_step"
#: Of what the program itself hands to observe() or watch_grad().
USER = "user"
#: How the model itself is called.
ROOT = "(root)"
#: How the reason begins why values are not kept where a file of them could not be written.
NOT_WRITTEN = "not written"
