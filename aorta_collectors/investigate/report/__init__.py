"""The report of an investigation: what tools showed, what a person added, and what follows, each told apart."""
