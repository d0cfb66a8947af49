"""Is the evidence of memory there, and what does it come to? Read on the sweep's side, without torch."""
