"""Names shared by the sweep's side, which must not import torch, and the observed program's."""

from aorta_collectors.observe.process.names import ProcessNames

#: Set by a sweep: the trial whose evidence a process writes.
RUN_ID_VARIABLE = "NANLOG_RUN_ID"
#: Set by --config.
CONFIG_FILE_VARIABLE = "NANLOG_CONFIG_FILE"
DIRECTORY_VARIABLE = "NANLOG_DIR"
#: NANLOG_* variables that are no options of a collect: block.
OUR_VARIABLES = (DIRECTORY_VARIABLE, RUN_ID_VARIABLE, CONFIG_FILE_VARIABLE)
PROCESS = ProcessNames("layers", RUN_ID_VARIABLE, DIRECTORY_VARIABLE, "nan_logger_out")
ARM_FUNCTION = "aorta_collectors.layer_numerics.arming:arm"
