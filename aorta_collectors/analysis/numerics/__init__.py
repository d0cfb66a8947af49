"""Reading what the numerics collector left: each file one question; `analysis/profile.py` puts the answers together."""
