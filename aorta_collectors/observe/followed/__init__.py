"""Following one named tensor of the batch: finding it, numbering batches, the pipeline's stages, a stream for reads."""
