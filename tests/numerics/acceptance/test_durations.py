"""A planted sleep and a planted slow matrix product are found in their bricks, to within 5 % of what they took."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from tests.numerics.acceptance.running import armed, of_brick

#: Each planted part measures itself, in both directions, in each of its calls.
PROGRAM = """
import json
import time
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
took = {}


class Timed:
    def __init__(self, layer, direction):
        self.key = f"{layer} {direction}"

    def __enter__(self):
        self.began = time.perf_counter_ns()

    def __exit__(self, *_):
        took.setdefault(self.key, []).append((time.perf_counter_ns() - self.began) / 1e3)


class SleepTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with Timed("sleeper", "forward"):
            time.sleep(0.012)
            return x.clone()

    @staticmethod
    def backward(ctx, grad):
        with Timed("sleeper", "backward"):
            time.sleep(0.020)
            return grad.clone()


class MatmulTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        with Timed("product", "forward"):
            for _ in range(6):
                weight @ weight
            return x.clone()

    @staticmethod
    def backward(ctx, grad):
        with Timed("product", "backward"):
            weight = torch.ones(300, 300)
            for _ in range(12):
                weight @ weight
            return grad.clone(), None


class Sleeper(nn.Module):
    def forward(self, x):
        return SleepTwice.apply(x)


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randn(300, 300))

    def forward(self, x):
        return MatmulTwice.apply(x, self.weight)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.sleeper = Sleeper()
        self.second = nn.Linear(16, 16)
        self.product = Product()
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        return self.last(self.product(self.second(self.sleeper(self.first(x)))))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
with open("took.json", "w") as file:
    json.dump(took, file)
"""
PLANTED = ("sleeper", "product")
DIRECTIONS = ("forward", "backward")
WITHIN = 0.05


@pytest.fixture(scope="module", params=["deferred", "immediate"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("durations")
    options = ["--profile", request.param, "--escalate", "off"]
    ran, left = armed(directory, PROGRAM, *options)
    ran.ok()
    assert left.summary["hook_errors"] == 0, left.summary["first_hook_error"]
    return json.loads((directory / "took.json").read_text()), left


def both(run: Any, layer: str, direction: str) -> tuple[list[float], list[float]]:
    """What its spans say of its calls, and what it measured of itself, in microseconds; of the steps that count."""
    took, left = run
    counts = [line["step"] for line in left.lines("steps") if not line["is_counted"]]
    spans = [span for span in left.lines("spans") if (span["layer"], span["direction"]) == (layer, direction)]
    told = {span["step"]: (span["duration_ns"] - span["overhead_ns"]) / 1e3 for span in spans}
    return [told[step] for step in counts], [took[f"{layer} {direction}"][step - 1] for step in counts]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layer", PLANTED)
def test_what_it_took_is_in_its_brick(run: Any, layer: str, direction: str) -> None:
    told, planted = both(run, layer, direction)
    brick = of_brick(run[1].summary, layer, direction)
    assert brick["calls"] == len(planted) >= 8
    assert brick["p50_us"] == pytest.approx(statistics.median(told), rel=WITHIN)
    # Its spans are those that the next test holds against what it measured, call by call.
    assert brick["total_us"] == pytest.approx(sum(told), rel=1e-3)
    assert brick["self_us"] == pytest.approx(sum(told), rel=1e-3)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layer", PLANTED)
def test_its_spans_say_the_same(run: Any, layer: str, direction: str) -> None:
    # Another process may come between the two clocks in one call or another, but not in most.
    ratios = [span / own for span, own in zip(*both(run, layer, direction), strict=True)]
    assert statistics.median(ratios) == pytest.approx(1.0, abs=WITHIN)
    assert min(ratios) >= 0.999


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_planted_parts_come_first(run: Any, direction: str) -> None:
    _, left = run
    rows = [row for row in left.summary["bricks"] if row["direction"] == direction]
    longest = sorted(rows, key=lambda row: -row["self_us"])[:2]
    assert {row["layer"] for row in longest} == set(PLANTED)


def test_what_bounds_them_is_said(run: Any) -> None:
    _, left = run
    sleeper = of_brick(left.summary, "sleeper", "forward")
    assert sleeper["bound"] == "host"
    assert sleeper["efficiency"] < 0.05
    product = of_brick(left.summary, "product", "forward")
    assert product["flops"] == 6 * 2 * 300**3
    assert product["bound"] == "compute"
    assert product["efficiency"] > sleeper["efficiency"] * 5
