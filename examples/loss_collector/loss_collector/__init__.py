"""The loss of each step, as evidence in the trials of an aorta sweep."""
