"""Reading what collectors have left, after a run: what a person asks of one trial."""
