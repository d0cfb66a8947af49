"""Verifying an investigation: everything is there, as it was recorded, in the order that was declared."""
