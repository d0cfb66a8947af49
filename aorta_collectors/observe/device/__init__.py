"""Reading tensors that lie on a GPU: reduced there in one pass, brought to the host a step later, never waited for."""
