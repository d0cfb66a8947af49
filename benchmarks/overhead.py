"""What observing costs: the bare step, the native engine and the stock logger, in alternating runs.

    make bench
    python benchmarks/overhead.py --rounds 5 --script path/to/script.py

The script prints "STEP_MS <number>" (or "STEP_MS median <number> ..."). The limit is one pass over each watched
tensor: what `torch.aminmax` alone takes on the same bytes, measured in the same run. Machines are shared and noisy,
so runs alternate and ratios are taken within a round; the median of the rounds is reported.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
VARIANTS = {
    "bare": [],
    "native": ["-m", "aorta_collectors.layer_numerics"],
    "native, all channels": ["-m", "aorta_collectors.layer_numerics"],
    "stock": ["-m", "aorta.instrumentation.layer_numerics"],
}
ALL_CHANNELS = "act,input,igrad,weight,bias,wgrad,bgrad"
TARGET = 1.10


def step_ms(variant: str, script: Path) -> float:
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "NANLOG_DIR": directory}
        if variant.endswith("all channels"):
            env["NANLOG_CHANNELS"] = ALL_CHANNELS
        argv = [sys.executable, *VARIANTS[variant], str(script)]
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True)
    found = re.search(r"STEP_MS (?:median )?([\d.]+)", done.stdout)
    if found is None:
        raise SystemExit(f"{script} printed no STEP_MS line")
    return float(found.group(1))


def one_pass_ms() -> float:
    """One aminmax over what the default channels read in a step: outputs and input gradients of each Linear."""
    import torch

    width, layers, tokens, classes = 256, 6, 8 * 128, 64
    outputs = [(3 * width, 1), (width, 1), (4 * width, 1), (width, 1)]
    inputs = [(width, 1), (width, 1), (width, 1), (4 * width, 1)]
    tensors = [torch.randn(tokens, size) for size, _ in (outputs + inputs) * layers]
    tensors += [torch.randn(tokens, classes), torch.randn(tokens, width)]
    torch.set_num_threads(2)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for tensor in tensors:
            torch.aminmax(tensor)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--script", type=Path, default=HERE / "transformer.py")
    arguments = parser.parse_args()
    rounds: list[dict[str, float]] = []
    for number in range(1, arguments.rounds + 1):
        rounds.append({variant: step_ms(variant, arguments.script) for variant in VARIANTS})
        shown = "  ".join(f"{variant} {value:.1f}" for variant, value in rounds[-1].items())
        print(f"round {number}: {shown}", flush=True)
    print(f"\n{'':22}{'step (ms)':>10}{'of bare':>10}")
    for variant in VARIANTS:
        median = statistics.median(entry[variant] for entry in rounds)
        ratio = statistics.median(entry[variant] / entry["bare"] for entry in rounds)
        print(f"{variant:22}{median:10.1f}{ratio:10.3f}")
    bare = statistics.median(entry["bare"] for entry in rounds)
    print(f"{'limit: one pass':22}{'':10}{1 + one_pass_ms() / bare:10.3f}")
    native = statistics.median(entry["native"] / entry["bare"] for entry in rounds)
    print(f"\nnative {native:.3f} of bare, target {TARGET:.2f}: {'met' if native <= TARGET else 'MISSED'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
