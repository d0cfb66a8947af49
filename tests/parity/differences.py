"""In what our records differ from the stock logger's, one by one, and why ours are right."""

from __future__ import annotations

from tests.parity.both import Differs, Elsewhere, InSummary, OnlyOurs, Record

# -- which tensors there are records of

FURTHER_TENSORS = OnlyOurs(
    "Every tensor of a module's inputs and outputs has a record. The stock logger reads the first positional one.",
    lambda record: record["tensor_path"] not in ("", "[0]"),
)
SPARSE_WAIT = OnlyOurs(
    "torchrec 1.8 hands wait_sparse_data_dist a context, not a batch. Ours finds the batch, the stock logger none.",
    lambda record: record["phase"] == "sparse_wait" and record["direction"] == "pipeline",
)
SPARSE_WAIT_COUNTED = InSummary(
    "Three stages of each batch instead of two.",
    "pipeline_checkpoints",
    lambda ours, stock: 2 * ours == 3 * stock > 0,
)

# -- where and when they are read


def _is_backward_in_a_pipeline(ours: Record, stock: Record) -> bool:
    return (
        ours["direction"] in ("bwd", "grad")
        and (stock["phase"], stock["batch_id"]) == ("sparse_wait", None)
        and ours["phase"] == "forward"
        and ours["batch_id"] == ours["step"]
    )


BATCH_OF_BACKWARD = Differs(
    "Backward belongs to the batch that was in forward. The stock logger stamps the stage that came last meanwhile.",
    ("phase", "batch_id"),
    _is_backward_in_a_pipeline,
)
READ_ON_ENTRY = Elsewhere(
    "Inputs are read when the module is entered: those of a container before its parts. The stock logger reads them "
    "after the module has run.",
    lambda record: record["role"] == "input",
)
COUNT_ON_ENTRY = Differs(
    "Therefore fewer tensors have been seen by then.",
    ("matmul_calls_so_far",),
    lambda ours, stock: ours["role"] == "input" and ours["matmul_calls_so_far"] < stock["matmul_calls_so_far"],
)

# -- what the summary says of the configuration

NO_FOLLOW = InSummary(
    "Where nothing is followed, there are no names of followed tensors.",
    "track_attr",
    lambda ours, stock: (ours, stock) == ([], ["embedding_features"]),
)
NO_CHANNELS = InSummary(
    "Where nothing is watched, no channel is in force.",
    "channels",
    lambda ours, stock: (ours, stock) == ([], ["act", "igrad"]),
)
FOLLOW_SCOPE = InSummary(
    "The scope of a follow is not one of what is watched.",
    "watch_types",
    lambda ours, stock: (ours, stock) == ([], ["Linear"]),
)
OPEN_END = InSummary(
    "An open end is null: JSON has no Infinity.",
    "bound_global",
    lambda ours, stock: ours == [None if abs(end) == float("inf") else end for end in stock] and None in ours,
)
