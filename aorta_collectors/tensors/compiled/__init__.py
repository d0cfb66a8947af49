"""Tensors inside code of torch.compile, under the names and invocations that they have in eager."""
