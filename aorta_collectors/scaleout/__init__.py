"""A sweep as one job a cell, on a Slurm cluster or on one machine, and the evidence of all of them in one matrix."""
