"""The page of an investigation's directory: what lies where, and the fields of its files."""

from __future__ import annotations

from collector_parts import whole
from schema_tables import GENERATED
from tables import table

from aorta_collectors.investigate.collecting import DEFAULTS
from aorta_collectors.investigate.design import KINDS, Design

_TREE = """```
ROOT/
  metadata.json            what is asked, and how it is answered
  journal.jsonl            digests of what was declared and of how each run ended, chained
  runs/001-baseline-1/     a run; -2 is the second repetition, -bare one without the tool,
                           -warmup-1 a warm-up, and -attempt2 behind it one that was made again
    run.json               how it went, with the sha256 of each file below
    command.txt            how to run it again
    stdout.log, stderr.log of the program
    sweep.log              of aorta
    recipe.yaml            the recipe of its sweep
    bundles/               the sweep's own directory: record, receipts, what collectors wrote
  evidence/                what the tools print of the runs, each in a file
    index.json             what the report was made of
  REPORT.md, report.html   made by report, like evidence/
  inference.md, gaps.md, supplemental/
                           a person's own
```
"""


def investigation() -> str:
    rows = []
    for kind in KINDS:
        collector, options, points = DEFAULTS[kind]
        design = Design.of(kind)
        asked = ", ".join(f"`{name}: {value}`" for name, value in options.items())
        bare = "in every repetition" if design.every_repetition else "in the first repetition"
        rows.append(
            [
                f"`{kind}`",
                f"`{collector}`" + (f" with {asked}" if asked else ""),
                ", ".join(f"`{point}`" for point in points),
                design.order,
                str(design.repetitions),
                str(design.warm_up),
                bare,
            ]
        )
    heads = ("kind", "collector", "points", "order", "repetitions", "warm-up", "without the tool")
    parts = [
        "# Investigations: the directory\n",
        GENERATED,
        "[Investigate](../how-to/investigate.md) shows how it is used, [the command line](cli.md) has the options.\n",
        "## Kinds of questions\n",
        "What `investigate new` declares unless it is told otherwise:\n",
        *table(heads, rows),
        "",
        "## Files\n",
        _TREE,
        *whole("investigation.metadata", "metadata.json"),
        *whole("investigation.run", "run.json"),
        *whole("investigation.journal", "A line of journal.jsonl"),
        *whole("investigation.report", "evidence/index.json"),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"
