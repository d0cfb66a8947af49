"""The awkward programs, and what has to be seen of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One program.

    Attributes:
        layers: What is watched, by name.
        steps, optimizer_steps: How many there are.
        first_bad: (step, layer, role) of the first bad record in the run that goes bad; None where no watched layer
            shows it.
        origin: (stage, module, step).
        opaque: Layers whose calls compiled code takes in; the others have a record of their output.
        breaks: Whether graphs are to be broken.
        evaluations: Steps without gradients.
        invocations: Most calls of a layer in one step.
        end: Exit code.
        clean: Whether the program is also run without anything bad.
    """

    layers: tuple[str, ...]
    steps: int
    optimizer_steps: int
    first_bad: tuple[int, str, str] | None
    origin: tuple[str, str, int]
    opaque: tuple[str, ...] = ()
    breaks: bool = False
    evaluations: int = 0
    invocations: int = 1
    end: int = 0
    clean: bool = True


ROWS = {
    "roots.adversarial": Row(
        ("0", "2", "Sequential#2.0", "Sequential#2.2"), 8, 10, (5, "0", "input"), ("data", "(root)", 5), invocations=3
    ),
    "roots.teacher_and_student": Row(
        ("0", "2", "Sequential#2.0", "Sequential#2.2"),
        4,
        4,
        (3, "Sequential#2.0", "input"),
        ("data", "Sequential#2.(root)", 3),
    ),
    "roots.moving_average": Row(
        ("0", "2", "AveragedModel#2.module.0", "AveragedModel#2.module.2"),
        4,
        4,
        (3, "0", "input"),
        ("data", "(root)", 3),
    ),
    "roots.evaluation_between": Row(("0", "3"), 12, 4, (7, "0", "input"), ("data", "(root)", 7), evaluations=8),
    "roots.evaluation_goes_bad": Row(("0", "2"), 8, 4, (6, "0", "input"), ("data", "(root)", 6), evaluations=4),
    "roots.accumulation": Row(("0", "2"), 9, 3, (5, "0", "input"), ("data", "(root)", 5)),
    "roots.growing": Row(("0", "2", "3"), 4, 4, (3, "2", "weight"), ("parameter", "2", 3)),
    "roots.between_models": Row(
        ("(root)", "Sequential#2.0", "Sequential#2.1"),
        4,
        4,
        (3, "Sequential#2.0", "input"),
        ("forward", "Scale#2.(root)", 3),
    ),
    "roots.prepared": Row(("0", "2"), 4, 4, (3, "0", "input"), ("forward", "Normalise.(root)", 3)),
    "roots.several_optimizers": Row(("0", "2"), 4, 8, (4, "2", "weight"), ("optimizer", "2", 3)),
    "roots.copied_midway": Row(
        (
            "0",
            "2",
            "Sequential#2.0",
            "Sequential#2.2",
            "Sequential#3.0",
            "Sequential#3.2",
            "Sequential#4.0",
            "Sequential#4.2",
        ),
        4,
        4,
        (3, "Sequential#3.0", "input"),
        ("data", "Sequential#3.(root)", 3),
    ),
    "differentiation.checkpointed": Row(
        ("blocks.0", "blocks.1.0", "blocks.2"), 4, 4, (3, "blocks.2", "input"), ("forward", "log", 3)
    ),
    "differentiation.checkpointed_reentrant": Row(
        ("blocks.0", "blocks.1.0", "blocks.2"), 4, 4, (3, "blocks.2", "input"), ("forward", "log", 3)
    ),
    "differentiation.checkpointed_sequence": Row(
        ("(root)", "Linear#2.(root)", "Linear#3.(root)"), 4, 4, (3, "(root)", "input"), ("data", "(root)", 3)
    ),
    "differentiation.optimizer_in_backward": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.applied_in_backward": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.anomaly_detection": Row(("0", "2"), 3, 2, None, ("backward", "(loss)", 3), end=1),
    "differentiation.function_mode": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.dispatch_mode": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.profiled": Row(("0", "2"), 4, 0, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.functional_call": Row(("0", "2"), 4, 0, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.per_sample_gradients": Row(("0", "2"), 4, 0, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.forward_derivative": Row(("0", "2"), 4, 0, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.ensemble": Row(("0", "2"), 4, 0, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.second_derivative": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "differentiation.deprecated_arguments": Row(("0", "2"), 4, 0, (3, "0", "input"), ("data", "(root)", 3)),
    "strangers.replacing_outputs": Row(("0", "2"), 4, 4, (3, "0", "act"), ("forward", "0", 3)),
    "strangers.replacing_inputs": Row(("0", "2"), 4, 4, (3, "2", "act"), ("forward", "2", 3)),
    "strangers.replacing_keywords": Row(("0", "2"), 4, 4, (3, "2", "act"), ("forward", "2", 3)),
    "strangers.global_hooks": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "strangers.global_hook_replaces": Row(("0", "2"), 4, 4, (3, "0", "act"), ("forward", "0", 3)),
    "strangers.hooks_made_in_forward": Row(("layer", "head"), 4, 4, (3, "layer", "act"), ("forward", "layer", 3)),
    "strangers.full_backward_hooks": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "strangers.tensor_hooks": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "strangers.normalised_weights": Row(("0", "1", "2", "3"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "strangers.symbolically_traced": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "strangers.scripted": Row(("0.0", "1"), 4, 4, (3, "1", "input"), ("data", "(root)", 3), opaque=("0.0",)),
    "strangers.called_by_forward": Row(
        ("(root)", "Linear#2.(root)"), 4, 4, (3, "(root)", "input"), ("data", "(root)", 3)
    ),
    "strangers.pruned": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "strangers.forward_is_replaced": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "kinds.lazy": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "kinds.tied": Row(("body", "head"), 4, 4, (3, "head", "input"), ("forward", "(root)", 3)),
    "kinds.recurrent": Row(("head",), 4, 4, (3, "head", "input"), ("data", "(root)", 3)),
    "kinds.packed_sequence": Row((), 4, 4, None, ("data", "(root)", 3), invocations=0),
    "kinds.nested": Row(("(root)",), 4, 4, (3, "(root)", "input"), ("data", "(root)", 3)),
    "kinds.quantized": Row(("0.0", "0.2", "2"), 4, 0, (3, "2", "input"), ("forward", "1", 3), evaluations=4),
    "kinds.autocast": Row(("0", "2"), 4, 3, (3, "0", "input"), ("data", "(root)", 3)),
    "kinds.generation": Row(("head",), 4, 0, (3, "head", "input"), ("forward", "(root)", 3), evaluations=4),
    "kinds.inference": Row(("0",), 4, 0, (3, "0", "input"), ("data", "(root)", 3), evaluations=4),
    "compiled.function_around": Row(
        ("0", "2"),
        4,
        4,
        (3, "0", "wgrad"),
        ("data", "loss_of (compiled.py:31)", 3),
        opaque=("0", "2"),
        invocations=0,
        clean=False,
    ),
    "compiled.step_function": Row(
        ("0", "2"),
        4,
        0,
        (4, "0", "weight"),
        ("data", "step_of (compiled.py:45)", 3),
        opaque=("0", "2"),
        breaks=True,
        invocations=0,
        clean=False,
    ),
    "compiled.method_around": Row(
        ("body.0", "body.2", "head"),
        4,
        4,
        (3, "body.0", "wgrad"),
        ("data", "loss_of (compiled.py:62)", 3),
        opaque=("body.0", "body.2", "head"),
        breaks=True,
        invocations=0,
        clean=False,
    ),
    "compiled.two_models_in_one": Row(
        ("(root)", "Sequential#2.0", "Sequential#2.1"),
        4,
        4,
        (3, "(root)", "wgrad"),
        ("data", "loss_of (compiled.py:77)", 3),
        opaque=("(root)", "Sequential#2.0", "Sequential#2.1"),
        invocations=0,
        clean=False,
    ),
    "compiled.whole_model": Row(
        ("_orig_mod.0", "_orig_mod.2"),
        4,
        4,
        (3, "_orig_mod.0", "wgrad"),
        ("data", "(root)", 3),
        opaque=("_orig_mod.0", "_orig_mod.2"),
        invocations=0,
        clean=False,
    ),
    "compiled.in_place": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3), clean=False),
    "compiled.part_of_model": Row(
        ("0._orig_mod.0", "1"), 4, 4, (3, "1", "input"), ("data", "(root)", 3), opaque=("0._orig_mod.0",), clean=False
    ),
    "compiled.graph_breaks": Row(
        ("_orig_mod.first", "_orig_mod.second", "_orig_mod.third"),
        4,
        4,
        (3, "_orig_mod.first", "wgrad"),
        ("data", "(root)", 3),
        opaque=("_orig_mod.first", "_orig_mod.second", "_orig_mod.third"),
        breaks=True,
        invocations=0,
        clean=False,
    ),
    "compiled.broken_inside": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3), breaks=True, clean=False),
    "compiled.one_graph_for_all": Row(
        ("0.layer", "1.layer", "2.layer", "3"),
        4,
        4,
        (3, "3", "input"),
        ("data", "(root)", 3),
        opaque=("0.layer", "1.layer", "2.layer"),
        clean=False,
    ),
    "compiled.loss_only": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3), clean=False),
    "compiled.optimizer_only": Row(
        ("0", "2"), 4, 0, (3, "0", "input"), ("data", "(root)", 3), breaks=True, clean=False
    ),
    "compiled.eager_for_evaluation": Row(
        ("0", "2"),
        8,
        4,
        (5, "0", "wgrad"),
        ("data", "loss_of (compiled.py:180)", 5),
        opaque=("0", "2"),
        evaluations=4,
        clean=False,
    ),
    "processes.forking_loader": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "processes.threads": Row(
        ("0", "2", "Sequential#2.0", "Sequential#2.1"),
        4,
        8,
        (3, "Sequential#2.0", "input"),
        ("data", "Sequential#2.(root)", 3),
    ),
    "processes.worker_thread": Row(("0", "2"), 4, 4, (3, "0", "input"), ("data", "(root)", 3)),
    "processes.data_parallel": Row(("module.0", "module.2"), 8, 4, (6, "module.0", "input"), ("data", "(root)", 6)),
    "processes.sharded_ranks": Row(("0", "2"), 4, 4, (3, "0", "wgrad"), ("backward", "0", 3), clean=False),
}
