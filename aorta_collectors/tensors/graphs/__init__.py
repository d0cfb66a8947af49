"""Tensors inside CUDA graphs: copied within the graph while it is captured, recorded after each of its replays."""
