"""Statistics and payloads of a whole run, against what hooks of the program's own saw, computed in float64."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from tests.numerics.acceptance.running import armed
from tests.numerics.left import Left

#: Models in three precisions, each called once a step. Hooks of its own keep what every layer gives out, and gradients.
PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
kept = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.act = nn.ReLU()
        self.drop = nn.Dropout(0.3)
        self.down = nn.Linear(64, 16)
        self.tanh = nn.Tanh()
        self.clamp = nn.Hardtanh(-0.5, 0.5)
        self.gate = nn.Sigmoid()
        self.gru = nn.GRU(16, 8, batch_first=True)
        self.head = nn.Linear(8, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.down(self.drop(self.act(self.up(self.norm(x)))))
        x = self.gate(x * 30) * self.clamp(x) + self.tanh(x * 4)
        return self.head(self.gru(x)[0])


def tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    return [each for part in output for each in tensors(part)]


def keep(*key):
    return lambda tensor: kept.append((*key, tensor.detach().clone()))


def look(model, label):
    def after(module, args, output):
        name = label + next(name for name, part in model.named_modules() if part is module)
        for index, tensor in enumerate(tensors(output)):
            keep(step, name, "forward", index)(tensor)
            if tensor.requires_grad:
                tensor.register_hook(keep(step, name, "backward", index))
    for part in model.modules():
        if not list(part.children()):
            part.register_forward_hook(after)


dtypes = (torch.float32, torch.bfloat16, torch.float16)
models = [Net().to(dtype) for dtype in dtypes]
with torch.no_grad():
    models[2].up.weight.mul_(100_000)  # of float16: overflows
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
for model, label in zip(models, ("", "Net#2.", "Net#3.")):
    look(model, label)
tokens = torch.randint(0, 50, (4, 12))
for step in range(1, 3):
    for model, optimizer in zip(models, optimizers):
        optimizer.zero_grad()
        logits = model(tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
        optimizer.step()
torch.save(kept, "kept.pt")
"""
STEPS = 2
EACH_STEP = ("--trace-level", "payload", "--stats-every", "1")
# Where the slope is under 1 % of the steepest.
SATURATES_AT = {
    "tanh": (-math.sqrt(0.99), math.sqrt(0.99)),
    "clamp": (-0.5, 0.5),
    "gate": ((1 - math.sqrt(0.99)) / 2, (1 + math.sqrt(0.99)) / 2),
}


class Key(NamedTuple):
    step: int
    layer: str
    direction: str
    number: int


class Found(NamedTuple):
    left: Left
    reference: Mapping[Key, Tensor]
    lines: Mapping[Key, Mapping[str, Any]]
    payload: Mapping[Key, Tensor]


def keyed(lines: list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    found: dict[Key, dict[str, Any]] = {}
    for line in lines:
        if line["layer"].endswith("(root)"):
            continue  # the same tensor as the head's
        index = 0 if line["tensor_path"] in ("", "[0]") else 1
        key = Key(line["step"], line["layer"], line["direction"], index)
        assert key not in found
        found[key] = line
    return found


def written(left: Left, lines: list[dict[str, Any]]) -> Iterator[tuple[Key, Tensor]]:
    by_seq = {(line["step"], line["seq"]): key for key, line in keyed(lines).items()}
    for step in range(1, STEPS + 1):
        with safe_open(left.directory / f"payload_rank0_step{step}.safetensors", "pt") as file:
            for name, told in file.metadata().items():
                key = by_seq.get((step, json.loads(told)["seq"])) if name != "step" else None
                if key is not None:
                    yield key, file.get_tensor(name)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    directory = tmp_path_factory.mktemp("statistics")
    ran, left = armed(directory, PROGRAM, *EACH_STEP)
    ran.ok()
    assert left.summary["hook_errors"] == 0, left.summary["first_hook_error"]
    kept = torch.load(directory / "kept.pt", weights_only=True)
    reference = {Key(step, layer, direction, index): tensor for step, layer, direction, index, tensor in kept}
    lines = left.lines("stats")
    return Found(left, reference, keyed(lines), dict(written(left, lines)))


def test_every_tensor_that_the_program_saw_has_a_line(found: Found) -> None:
    assert len(found.reference) > 6 * 20
    assert set(found.lines) == set(found.reference)


def test_min_and_max_are_exact(found: Found) -> None:
    for key, tensor in found.reference.items():
        finite = tensor.double()[tensor.isfinite()]
        ends = (finite.min().item(), finite.max().item()) if len(finite) else (None, None)
        assert (found.lines[key]["min"], found.lines[key]["max"]) == ends, key


def test_mean_and_deviation_are_those_of_float64(found: Found) -> None:
    for key, tensor in found.reference.items():
        finite = tensor.double()[tensor.isfinite()]
        line = found.lines[key]
        if not len(finite):
            assert line["mean"] is line["std"] is None
            continue
        # Means to 1e-6 of the root mean square: a mean near zero has few digits in any float32 sum.
        scale = finite.square().mean().sqrt().item()
        assert line["mean"] == pytest.approx(finite.mean().item(), rel=1e-6, abs=1e-6 * scale), key
        assert line["std"] == pytest.approx(finite.std(correction=0).item(), rel=1e-6, abs=1e-12 * scale), key


def test_counts_and_fractions_are_exact(found: Found) -> None:
    bad = 0
    for key, tensor in found.reference.items():
        line = found.lines[key]
        assert (line["dtype"], line["shape"]) == (str(tensor.dtype)[6:], list(tensor.shape))
        assert line["numel"] == tensor.numel()
        assert line["nan_count"] == tensor.isnan().sum().item(), key
        assert line["inf_count"] == tensor.isinf().sum().item(), key
        assert line["zero_fraction"] == (tensor == 0).sum().item() / tensor.numel(), key
        ends = SATURATES_AT.get(key.layer.split(".")[-1]) if key.direction == "forward" else None
        least, most = ends or (torch.finfo(tensor.dtype).min, torch.finfo(tensor.dtype).max)
        wide = tensor.double()
        saturated = ((wide <= least) | (wide >= most)).sum().item() / tensor.numel()
        assert line["saturated_fraction"] == saturated, key
        bad += line["nan_count"] + line["inf_count"]
    assert bad > 0
    assert any(line["saturated_fraction"] > 0 for key, line in found.lines.items() if key.layer.endswith("gate"))
    assert any(0 < line["zero_fraction"] < 1 for key, line in found.lines.items() if key.layer.endswith("act"))


def test_payloads_are_exactly_those_tensors(found: Found) -> None:
    assert set(found.payload) == set(found.reference)
    for key, tensor in found.reference.items():
        kept = found.payload[key]
        assert kept.dtype == tensor.dtype
        assert torch.equal(kept.nan_to_num(7.0), tensor.nan_to_num(7.0)), key
        assert torch.equal(kept.isnan(), tensor.isnan())


def test_the_first_bad_value_is_told(found: Found) -> None:
    bad = [line for line in found.left.lines("stats") if line["nan_count"] or line["inf_count"]]
    first = min(bad, key=lambda line: (line["step"], line["seq"]))
    told = found.left.summary["first_bad"]
    assert (told["step"], told["seq"], told["layer"]) == (first["step"], first["seq"], first["layer"])


def test_payloads_are_bounded(tmp_path: Path) -> None:
    most = 40_000
    ran, left = armed(tmp_path, PROGRAM, *EACH_STEP, "--payload-max-bytes", str(most))
    ran.ok()
    told = left.summary["payload"]
    files = sorted(left.directory.glob("payload_*.safetensors"))
    assert told["files"] == len(files) > 0
    kept = 0
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_tensor(name)
                kept += tensor.numel() * tensor.element_size()
    assert told["bytes"] == kept <= most
    assert told["tensors_dropped"] > 0
    assert told["bytes_dropped"] > 0
    assert len(left.lines("stats")) == left.summary["tensors_read"]
