"""Whether the evidence is there, and what it comes to."""
