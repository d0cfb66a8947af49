"""Which questions can be answered by what is declared: told by `new`, and by a report that has no answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.analysis.captures import LAYER_NUMERICS, MEMORY, TENSORS
from aorta_collectors.investigate.commands import REPETITION, SEED
from aorta_collectors.launch.launchers import MODULES, launcher_at
from aorta_collectors.launch.rows.clusters import CLUSTERS
from aorta_collectors.launch.rows.training import TRAINING

#: Collectors that answer a kind of question, the usual one first. How long a run takes is known without any.
_ANSWERING: Mapping[str, tuple[str, ...]] = {
    "values": (TENSORS.collector,),
    "finite": (LAYER_NUMERICS.collector, TENSORS.collector),
    "memory": (MEMORY.collector,),
}
_ASKS = {
    "values": "whether tensors agree",
    "finite": "where a NaN or Inf begins",
    "memory": "what grows",
}
# A name between braces, but those of a shell's variables.
_PLACE = re.compile(r"(?<!\$)\{[A-Za-z_]\w*\}")


def unserved(kind: str, collectors: Collection[str]) -> str:
    """Why collectors cannot answer a kind of question, without a full stop; empty where one of them can."""
    wanted = _ANSWERING.get(kind, ())
    if not wanted or any(name in collectors for name in wanted):
        return ""
    verb = "does" if len(wanted) == 1 else "do"
    return f"{', '.join(collectors)} cannot tell {_ASKS[kind]}; {' and '.join(wanted)} {verb}"


def doubts(metadata: Mapping[str, Any]) -> Iterator[str]:
    """What stands in the way of an answer, a sentence each; the design is allowed nevertheless.

    Args:
        metadata: As in metadata.json, before the first run.
    """
    why = unserved(metadata["kind"], metadata["collect"])
    if why:
        yield f"{why} (--collect)."
    is_alone, again = len(metadata["variants"]) == 1, metadata["design"]["repetitions"] > 1
    commands = [variant["command"] for variant in metadata["variants"] if variant["command"] is not None]
    if is_alone and metadata["kind"] == "values" and not again and not any(map(_starts_ranks, commands)):
        yield (
            "there is no candidate, and nothing that the baseline's tensors could be compared with unless the program "
            "has several ranks (--candidate, --repetitions 2)."
        )
    if is_alone and metadata["kind"] == "timing":
        yield "there is no candidate, and how long the baseline takes is compared with nothing (--candidate)."
    places = dict.fromkeys(
        place
        for words in commands
        for word in words
        for place in _PLACE.findall(word)
        if place not in (SEED, REPETITION)
    )
    for place in places:
        yield f"{place} is handed on as it stands; {SEED} and {REPETITION} are replaced in each run, and nothing else."


def _starts_ranks(words: Sequence[str]) -> bool:
    found = (launcher_at(words, index) for index in range(len(words)))
    return any(each is not None and each.launcher in (*TRAINING, *CLUSTERS) for each in found) or any(
        word in MODULES for word in words
    )
