"""Names shared by the sweep's side, which must not import torch, and the observed program's."""

#: Set by a sweep: the trial whose evidence a process writes.
RUN_ID_VARIABLE = "NANLOG_RUN_ID"
#: Set by --config.
CONFIG_FILE_VARIABLE = "NANLOG_CONFIG_FILE"
#: NANLOG_* variables that are no options of a collect: block.
OUR_VARIABLES = ("NANLOG_DIR", RUN_ID_VARIABLE, CONFIG_FILE_VARIABLE)
DEFAULT_DIRECTORY = "nan_logger_out"
ARM_FUNCTION = "aorta_collectors.layer_numerics.arming:arm"
