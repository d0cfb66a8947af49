"""What observed processes left, as verification reads it: each file whole, to its schema, and of this trial.

This is what all collectors that observe a process have in common: a summary of each process, files of lines beside it,
and notes of how processes ended. Nothing here imports torch.
"""
