"""`python -m aorta_collectors` is the command `aorta-collectors`, for launchers that start a module: torchrun -m."""

from __future__ import annotations

from aorta_collectors.cli import main

if __name__ == "__main__":
    main(prog_name="aorta-collectors")
