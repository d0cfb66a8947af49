"""What observing costs, measured: `python benchmarks/overhead.py` prints it beside the bars."""
