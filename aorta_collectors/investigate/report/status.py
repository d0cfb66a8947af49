"""Reproduction status, and what the number and the order of runs allow to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.investigate.design import NOISY
from aorta_collectors.investigate.files import STDOUT, Investigation, Run
from aorta_collectors.investigate.report.conclusion import counted
from aorta_collectors.investigate.report.finite import Finite
from aorta_collectors.investigate.report.numbers import counting
from aorta_collectors.investigate.report.values import OfPair
from aorta_collectors.investigate.statistics import LEAST
from aorta_collectors.investigate.verify.commands import command_faults
from aorta_collectors.investigate.verify.runs import order_faults


def is_controlled(metadata: Mapping[str, Any], runs: Sequence[Run]) -> bool:
    """Whether a difference is one of the variants: they took turns after equal warm-up, and nothing changed meanwhile.

    Args:
        runs: The last attempt at each.
    """
    design = metadata["design"]
    in_turns = design["order"] != "pair" and design["repetitions"] > 1 and design["warm_up"] > 0
    return in_turns and not metadata.get("changes") and len(_ended_well(runs)) == len(metadata["schedule"])


def supports(metadata: Mapping[str, Any], runs: Sequence[Run]) -> Iterator[str]:
    """What the number and the order of the runs allow to say, a sentence each."""
    if metadata["mode"] != "fresh":
        yield (
            "The artifacts were there before: order, warm-up and what else ran then are not known. They allow to say "
            "how they differ, and not why; differences in time or memory may be the machine's."
        )
        return
    repetitions = metadata["design"]["repetitions"]
    if metadata["kind"] in NOISY:
        yield from _of_noisy(metadata, _fewest(metadata, runs))
    elif repetitions == 1:
        what = "One matched pair" if len(metadata["variants"]) > 1 else "One run"
        yield (
            f"{what} is enough for a deterministic question. That this one is deterministic, a single repetition does "
            "not show (--repetitions)."
        )
    else:
        yield f"{repetitions} repetitions show whether the answer is the same each time."
        if metadata["seed"] is not None:
            yield (
                "Each has its own seed, so that they tell how often something happens; that the same seed does the "
                "same again, they do not."
            )
    for fault in order_faults(runs, metadata["started_at"]):
        yield f"The order was not as declared: {fault.place}: {fault.what}."
    lost = len(metadata["schedule"]) - len(_ended_well(runs))
    if lost:
        yield f"{counted(lost, 'run')} of {len(metadata['schedule'])} did not complete, and no median has them in it."
    if metadata.get("changes"):
        yield "Machine, software or code changed between runs (see Environment): runs before and after do not compare."


def _of_noisy(metadata: Mapping[str, Any], count: int) -> Iterator[str]:
    """Of what varies from run to run by itself.

    Args:
        count: Repetitions that completed.
    """
    design, is_pair = metadata["design"], len(metadata["variants"]) > 1
    if is_pair and (design["order"] == "pair" or design["repetitions"] == 1):
        yield (
            "The baseline came first in every repetition: what the machine does over time cannot be told from the "
            "candidate. Time and memory take several, with --order counterbalanced or random."
        )
    elif design["warm_up"] == 0:
        yield "There was no warm-up: the first runs may differ for that alone."
    elif is_pair:
        yield "The variants took turns after equal warm-up, as time and memory take it."
    else:
        yield "What counts ran after a warm-up."
    each = "of each" if is_pair else "of it"
    if count < LEAST:
        yield (
            f"{counted(count, 'repetition')} {each} {'is' if count == 1 else 'are'} too few for an interval of 95 % of "
            f"a median, which takes {LEAST} (--repetitions): values are listed, and no claim about medians is "
            "supported."
        )
    else:
        yield f"{counted(count, 'repetition')} {each} allow an exact interval of at least 95 % of a median."


def _ended_well(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.state == "completed"]


def _fewest(metadata: Mapping[str, Any], runs: Sequence[Run]) -> int:
    """Completed repetitions with the tool, of the variant that has fewest."""
    names = [variant["name"] for variant in metadata["variants"]]
    these = [run.record["variant"] for run in counting(runs) if run.record["tool"]]
    return min(these.count(name) for name in names)


def reproduction(
    investigation: Investigation,
    runs: Sequence[Run],
    pairs: Sequence[OfPair],
    again: Sequence[OfPair],
    finite: Sequence[Finite],
) -> Iterator[str]:
    """Whether repetitions agree, which runs did not end well, and whether the commands can be run again.

    Args:
        runs: All attempts.
        again: Repetitions of one variant beside each other.
    """
    yield from _agree(pairs, again, finite)
    yield from _outputs(runs)
    if investigation.metadata["mode"] != "fresh":
        yield "Nothing was run for this question, so that nothing of it can be run again from here."
        return
    if investigation.metadata["design"]["repetitions"] == 1:
        yield "No run was repeated: whether the same comes again is not known (--repetitions)."
    for run in runs:
        if run.state not in ("completed",):
            yield f"{run.directory.name}: {run.state}: {run.record['reason'] or 'it has not ended'}."
    begun = {run.number for run in runs}
    left = [entry["name"] for entry in investigation.metadata["schedule"] if entry["number"] not in begun]
    if left:
        yield f"{counted(len(left), 'run')} of the schedule not begun: {', '.join(left)}. `investigate run` goes on."
    faults = list(command_faults(investigation, list(runs)))
    for fault in faults:
        yield f"A command can no longer be run as it was: {fault.line}"
    if not faults:
        yield "The commands can be run again: their programs are found, and their files are as they were."


def _agree(pairs: Sequence[OfPair], again: Sequence[OfPair], finite: Sequence[Finite]) -> Iterator[str]:
    compared = [each for each in pairs if each.comparison is not None]
    if len(compared) > 1:
        places = {each.place for each in compared}
        if len(places) == 1:
            where = "part first at the same place" if compared[0].place is not None else "show no divergence"
            yield f"All {len(compared)} repetitions agree: they {where}."
        else:
            yield f"{len(compared)} repetitions do not agree on where the variants part first; see Inference."
    for each in again:
        labels = f"{each.pair[0].label} and {each.pair[1].label}, of one variant and seed,"
        if each.comparison is None:
            continue
        counts = each.comparison.counts
        if each.comparison.all_matched:
            yield f"{labels} are the same bit for bit in all {counts.matched} observations."
        elif each.diverged is not None:
            of = each.diverged[1].pair.either
            yield (
                f"{labels} are not the same bit for bit: first at {of.name}, invocation {of.invocation}. The variant "
                "does not repeat itself."
            )
        else:
            yield f"{labels} are not known to be the same; see Tool Gaps."
    seeds: dict[tuple[str, Any], set[bool]] = {}
    for one in finite:
        if one.is_finite is not None:
            seeds.setdefault((one.subject.variant, one.subject.seed), set()).add(one.is_finite)
    for (variant, seed), states in seeds.items():
        if len(states) > 1:
            of_seed = "" if seed is None else f" with seed {seed}"
            yield f"Repetitions of the {variant}{of_seed} do not agree on whether values are finite."


def _outputs(runs: Sequence[Run]) -> Iterator[str]:
    """Of the runs of one variant, seed and tool: whether they printed the same."""
    groups: dict[tuple[str, Any, bool], list[str]] = {}
    for run in counting(runs):
        digest = run.record["sha256"].get(STDOUT)
        if digest is not None:
            groups.setdefault((run.record["variant"], run.record["seed"], run.record["tool"]), []).append(digest)
    same: dict[tuple[str, bool], list[bool]] = {}
    for (variant, _, tool), digests in groups.items():
        if len(digests) > 1:
            same.setdefault((variant, tool), []).append(len(set(digests)) == 1)
    for (variant, tool), states in same.items():
        how = "with the tool" if tool else "without the tool"
        said = "the same" if all(states) else "not the same"
        yield f"Repetitions of the {variant} {how} printed {said} on stdout, byte for byte."
