"""Captures of any size for benchmarks: the lines of one real rank, repeated step by step with numbers of their own.

The program runs three steps under the logger, so that lines and summary are those of the real one. A capture has 100
records a step: of 50 layers the activation and the gradient of the input. Their magnitudes grow slowly; from the bad
step on, half of them are of NaN, as in the program's third step, where the weight of the 26th layer is.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDS_A_STEP = 100
_PROGRAM = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.feed_forward(self.attention(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(25)])

    def forward(self, x):
        return self.blocks(x)

torch.manual_seed(0)
model = Model()
for step in range(1, 4):
    if step == 3:
        model.blocks[12].feed_forward.weight.data.fill_(float("nan"))
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
"""
OPTIONS = {"NANLOG_SAMPLE_EVERY": "1", "NANLOG_ADDR": "1", "NANLOG_MAX_RECORDS": "1000000000"}
#: What differs from step to step: its number, the time, and the magnitudes, of which a NaN has none.
_NUMBERS = re.compile(
    r'(?P<head>.*"step": )\d+(?P<upto_optimizer>,.*"optimizer_step": )\d+(?P<upto_t>,.*"t": )[\d.]+'
    r"(?P<upto_magnitudes>,.*)"
    r'"finite_abs_max": (?P<largest>[^,]+), "finite_max": [^,]+, "finite_min": [^,]+(?P<rest>,.*)'
)


@dataclass(frozen=True)
class Template:
    """Lines of a clean step and of a bad one with % in place of numbers, and the summary."""

    clean: list[str]
    bad: list[str]
    summary: dict[str, Any]

    @classmethod
    def of_a_run(cls) -> Template:
        with tempfile.TemporaryDirectory() as directory:
            env = {**os.environ, **OPTIONS, "NANLOG_DIR": directory}
            argv = [sys.executable, "-m", "aorta_collectors.layer_numerics", "-c", _PROGRAM]
            subprocess.run(argv, env=env, check=True, capture_output=True)
            summary = json.loads((Path(directory) / "summary_rank0.json").read_bytes())
            lines = (Path(directory) / "layers_rank0.jsonl").read_text().splitlines()
        if len(lines) != 3 * RECORDS_A_STEP:
            raise RuntimeError(f"{len(lines)} records in three steps")
        of_step = [lines[index * RECORDS_A_STEP : (index + 1) * RECORDS_A_STEP] for index in range(3)]
        return cls([_template(line) for line in of_step[1]], [_template(line) for line in of_step[2]], summary)


def _template(line: str) -> str:
    found = _NUMBERS.fullmatch(line.replace("%", "%%"))
    if found is None:
        raise RuntimeError(f"no record as was expected: {line}")
    # All of a line's numbers are given to it; %.0s takes one and prints nothing.
    magnitudes = '"finite_abs_max": %r, "finite_max": %r, "finite_min": %r'
    if found["largest"] == "null":
        magnitudes = '"finite_abs_max": null%.0s, "finite_max": null%.0s, "finite_min": null%.0s'
    return (
        f"{found['head']}%d{found['upto_optimizer']}%d{found['upto_t']}%.6f{found['upto_magnitudes']}"
        f"{magnitudes}{found['rest']}\n"
    )


def make(directory: Path, template: Template, records: int, *, bad_from: float | None, ranks: int = 1) -> Path:
    """Write what NANLOG_DIR would have after so many records, of all ranks together. Returns the directory.

    Captures of one size have the same numbers in the same places, but for what is bad.

    Args:
        records: To the next 100 of each rank.
        bad_from: The part of the steps that is clean, from 0 to 1; None for all. Only the last rank goes bad.
    """
    directory.mkdir()
    steps = -(-records // (ranks * RECORDS_A_STEP))
    for rank in range(ranks):
        bad_step = int(steps * bad_from) + 1 if bad_from is not None and rank == ranks - 1 else None
        _write_rank(directory, template, rank, steps, bad_step)
        _write_summary(directory, template, rank, ranks, steps, bad_step)
    return directory


def _write_rank(directory: Path, template: Template, rank: int, steps: int, bad_step: int | None) -> None:
    of_rank = f'"rank": {rank}, "gpu": {rank}'
    clean, bad = (
        [line.replace('"rank": 0, "gpu": 0', of_rank) for line in lines] for lines in (template.clean, template.bad)
    )
    chance = random.Random(rank)
    with (directory / f"layers_rank{rank}.jsonl").open("w") as stream:
        for step in range(1, steps + 1):
            lines = bad if bad_step is not None and step >= bad_step else clean
            size = 1.0 + step / steps
            made = []
            for index, line in enumerate(lines):
                high, low = size * chance.random(), -size * chance.random()
                made.append(line % (step, step - 1, step / 10 + index / 1e4, max(high, -low), high, low))
            stream.write("".join(made))


def _write_summary(
    directory: Path, template: Template, rank: int, ranks: int, steps: int, bad_step: int | None
) -> None:
    first_bad, origin = template.summary["first_bad"], template.summary["origin"]
    if bad_step is None:
        first_bad = origin = None
    else:
        first_bad, origin = {**first_bad, "step": bad_step}, {**origin, "step": bad_step, "rank": rank}
    content = {
        **template.summary,
        "rank": rank,
        "world_size": ranks,
        "jsonl": str(directory / f"layers_rank{rank}.jsonl"),
        "records_written": steps * RECORDS_A_STEP,
        "steps_seen": steps,
        "first_bad": first_bad,
        "first_nonfinite": first_bad,
        "origin": origin,
    }
    (directory / f"summary_rank{rank}.json").write_text(json.dumps(content))
