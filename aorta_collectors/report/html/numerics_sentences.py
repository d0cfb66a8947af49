"""What the page says of a trial's profile: where the time goes, how the training goes, what stands out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aorta_collectors.analysis.numerics.phases import STEP
from aorta_collectors.analysis.report.profiled import OfNumerics, Profiled
from aorta_collectors.report.profile_words import amount, counted, duration, passed, percent
from aorta_collectors.report.wording import number, text

_MOST_SLOW, _MOST_CAUSES = 3, 5
_COUNTS = (("nan_count", "NaN"), ("inf_count", "Inf"))


def headline(found: Profiled) -> str:
    """One sentence."""
    if found.stopped is not None:
        return f"Stopped in step {found.stopped['step']}, layer {text(found.stopped['layer'])}"
    if found.first_bad is not None and not found.first_bad["came_to_nothing"]:
        return f"{_kind(found.first_bad)} in step {found.first_bad['step']}, layer {text(found.first_bad['layer'])}"
    profile = found.profile
    step = profile.phase(STEP)
    lasts = f", {duration(1000 * step.p50_ms)} a step" if step is not None and step.p50_ms is not None else ""
    longest = f", most in {text(profile.bricks[0].layer)}" if profile.bricks else ""
    return f"{counted(profile.steps, 'step')}{lasts}{longest}"


def is_bad(found: Mapping[str, Any] | None) -> bool:
    """Whether there is a bad value that the run did not get over."""
    return found is not None and not found.get("came_to_nothing")


def in_short(found: OfNumerics) -> str:
    """A trial in one line."""
    if is_bad(found.bad):
        assert found.bad is not None
        return f"{_kind(found.bad)} in step {found.bad['step']}, {text(found.bad['layer'])}"
    told = [f"{duration(1000 * found.step_p50_ms)} a step"] if found.step_p50_ms is not None else []
    done = found.throughput
    rates = [(done.tokens_per_s, "tokens/s"), (done.samples_per_s, "samples/s")]
    told += [f"{amount(rate)} {unit}" for rate, unit in rates if rate is not None][:1]
    if done.last_loss is not None:
        loss = done.last_loss
        told.append(f"loss {text(loss) if isinstance(loss, str) else number(float(f'{loss:.4g}'))}")
    return ", ".join(told) or counted(found.steps, "step")


def time(found: Profiled) -> Iterator[str]:
    """Where it goes."""
    profile = found.profile
    step = profile.phase(STEP)
    if step is not None and step.p50_ms is not None:
        tail = f", p99 {duration(1000 * step.p99_ms)}" if step.p99_ms is not None else ""
        yield f"A step takes {duration(1000 * step.p50_ms)}{tail}."
    phases = sorted((phase for phase in profile.phases if phase.name != STEP), key=lambda phase: -(phase.share or 0))
    if phases and phases[0].share is not None:
        yield f"Its longest phases: {', '.join(f'{text(p.name)} {percent(p.share)}' for p in phases[:_MOST_SLOW])}."
    if profile.bricks:
        slow = [f"{text(b.layer)} {passed(b.direction)} {percent(b.share)}" for b in profile.bricks[:_MOST_SLOW]]
        yield f"Modules with the longest time of their own: {', '.join(slow)}."
    elif profile.profiled == "off":
        yield "Modules were not timed: profile is off."


def course(found: Profiled) -> Iterator[str]:
    """How the training, or the inference, goes."""
    done, of_steps = found.profile.throughput, found.course
    if of_steps is not None and of_steps.last_loss is not None:
        last = of_steps.last_loss
        said = text(last) if isinstance(last, str) else number(float(f"{last:.4g}"))
        best = of_steps.best_loss
        where = f", best {number(float(f'{best:.4g}'))} in step {of_steps.best_loss_step}" if best is not None else ""
        yield f"Loss {said}{where}."
    rates = [(done.tokens_per_s, "tokens/s"), (done.samples_per_s, "samples/s"), (done.steps_per_s, "steps/s")]
    told = [f"{amount(rate)} {unit}" for rate, unit in rates if rate is not None]
    if done.mfu is not None:
        told.append(f"MFU {percent(done.mfu)}")
    if told:
        yield f"{', '.join(told)}."
    if done.memory_peak_mb is not None:
        yield f"Memory: {number(round(done.memory_peak_mb, 1))} MB at most."
    if found.profile.overhead is not None:
        yield f"Observing took {percent(found.profile.overhead)} of the steps' time."


def outstanding(found: Profiled) -> list[str]:
    """What stands out."""
    return list(_outstanding(found)) or ["Nothing does."]


def _outstanding(found: Profiled) -> Iterator[str]:
    profile = found.profile
    bad = found.stopped or found.first_bad
    if bad is not None:
        rank = f", rank {bad['rank']}" if len(profile.ranks) > 1 else ""
        over = "" if is_bad(bad) else "; training went on as if nothing had been, as after a mask or a skipped step"
        yield f"{_kind(bad)} at {text(bad['layer'])}, step {bad['step']}{rank}{over}."
        yield from (f"Likely: {text(cause['evidence'])}." for cause in _causes(bad)[:1] if cause.get("evidence"))
    elif any(statistics.rows for statistics in found.statistics):
        yield "No NaN or Inf in what was read."
    if profile.escalated:
        dominant = [f"{text(e.layer)} ({e.dominant})" if e.dominant else text(e.layer) for e in profile.escalated]
        looks = sum(each.looks for each in profile.escalated)
        yield f"{counted(looks, 'closer look')} at {counted(len(dominant), 'module')}, such as {dominant[0]}."
    if profile.imbalance is not None:
        lost = profile.imbalance
        yield f"{lost.slowest} is busy longest; the others wait for it up to {percent(lost.lost)} of a step."
    if found.fractions:
        worst = found.fractions[0]
        what = "zero" if (worst.zero or 0.0) >= (worst.saturated or 0.0) else "saturated"
        share = percent(max(worst.zero or 0.0, worst.saturated or 0.0))
        yield f"{text(worst.layer)} {passed(worst.direction)} is {share} {what}."
    if profile.roofline is None and profile.bricks:
        yield "No roofline was measured, so that efficiency is not known."


def diagnosis(found: Profiled) -> list[tuple[str, str]]:
    """Of a bad value: names and what is known, for a list; empty without one."""
    bad = found.stopped or found.first_bad
    if bad is None:
        return []
    tensor = f", tensor {text(bad['tensor_path'])}" if bad.get("tensor_path") else ""
    facts = [
        ("layer", f"{text(bad['layer'])} ({text(bad.get('module_type') or '-')})"),
        ("step", f"{bad['step']}, {text(bad.get('direction') or '')}{tensor}, rank {bad['rank']}"),
    ]
    first = found.first_bad or {}
    counts = [f"{first[key]} {word}" for key, word in _COUNTS if first.get(key)]
    if counts:
        of = f" of {first['numel']} {text(first.get('dtype') or '')} elements" if first.get("numel") else ""
        facts.append(("elements", f"{', '.join(counts)}{of}"))
    known = [f"{key} {number(first[key])}" for key in ("min", "max", "mean", "std") if _is_number(first.get(key))]
    if known:
        facts.append(("of the finite", ", ".join(known)))
    causes = [cause for cause in bad.get("causes") or () if isinstance(cause, Mapping)]
    facts += [
        (text(cause.get("kind") or "cause"), text(cause.get("evidence") or "")) for cause in causes[:_MOST_CAUSES]
    ]
    return facts


def _causes(bad: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the stop of the line was put down to."""
    return [cause for cause in bad.get("causes") or () if isinstance(cause, Mapping)]


def kernels(found: Profiled, most: int) -> Sequence[tuple[str, str, str, str]]:
    """Of the escalated bricks: the brick, why, where the time went, and its longest kernels."""
    rows = []
    for each in found.profile.escalated[:most]:
        why = [
            f"{'CV' if reason == 'unstable' else 'efficiency'} {_found(reason, value)}"
            for reason, (value, _) in each.reasons.items()
        ]
        where = each.dominant or "; ".join(map(text, each.unavailable)) or "-"
        longest = [f"{text(k.name)} {duration(max(k.self_us, k.device_us or 0.0))}" for k in each.kernels[:3]]
        rows.append((f"{text(each.layer)} {passed(each.direction)}", ", ".join(why), where, ", ".join(longest)))
    return rows


def _found(reason: str, value: float) -> str:
    return f"{value:.2g}" if reason == "unstable" else percent(value)


def _kind(bad: Mapping[str, Any]) -> str:
    kind = str(bad.get("kind") or ("nan" if bad.get("nan_count") else "inf"))
    return {"nan": "NaN", "inf": "Inf"}.get(kind, text(kind))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
