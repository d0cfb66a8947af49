"""Is the evidence there? Receipts, reading artifacts safely, verifying one trial or a whole run directory."""
