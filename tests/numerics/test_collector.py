"""The collect: numerics block: what is accepted, the exact words of what is not, and what becomes of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aorta_collectors.api import Capture, Launch, Options, OptionsError, WorkloadStopped
from aorta_collectors.layer_numerics.collector import LayerNumerics
from aorta_collectors.numerics.collector import Numerics
from aorta_collectors.numerics.options import EXPORTER
from aorta_collectors.schema_check import load_schema
from tests.numerics.left import Left
from tests.support import summary

COLLECTOR = Numerics()


class TestAccepted:
    @pytest.mark.parametrize(
        "raw",
        [
            {},
            {"trace": "payload", "payload_max_bytes": "1000", "on_bad": "stop"},
            {"trace": "layer", "steps": "attention, sample", "on_bad": "stop", "interval": "5", "stats_every": "1"},
            {"trace": "none", "profile": "immediate", "escalate": "on", "cv_threshold": "0.2", "rate_limit": "1"},
            {"trace": "none", "step_metrics": "on"},
            {"profile": "deferred", "escalate": "off"},
            {"otlp_endpoint": "http://localhost:4318", "on_missing": "warn"},
        ],
    )
    def test_what_can_be_honoured(self, raw: dict[str, str]) -> None:
        options = COLLECTOR.validate(raw)
        assert options == COLLECTOR.recall(raw)
        assert dict(options.raw) == raw

    def test_no_block_at_all(self) -> None:
        assert COLLECTOR.validate(None) == Options()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"trace": "full"}, 'trace: must be one of none, basic, layer, payload, got "full"'),
        ({"tarce": "layer"}, "tarce: unknown option; did you mean trace?"),
        ({"interval": "0"}, "interval: must be an integer >= 1, got 0"),
        (
            {"otlp_endpoint": "localhost:4318"},
            "otlp_endpoint: must be the address of an OTLP/HTTP receiver, such as http://localhost:4318",
        ),
        (
            {"trace": "none", "step_metrics": "off"},
            "trace: trace: none, profile: off and step_metrics: off ask for nothing; leave one of them out",
        ),
        ({"on_bad": "stop"}, "on_bad: stop needs the statistics of layers: set trace: layer or payload, not basic"),
        (
            {"trace": "layer", "payload_max_bytes": "1"},
            "payload_max_bytes: has no effect without trace: payload; trace is layer",
        ),
        ({"trace": "layer", "stats_every": "0"}, "stats_every: must be an integer >= 1, got 0"),
        ({"trace": "layer", "stats_every": "often"}, 'stats_every: must be an integer >= 1, got "often"'),
        ({"stats_every": "5"}, "stats_every: has no effect without trace: layer or payload; trace is basic"),
        (
            {"escalate": "on"},
            "escalate: on needs profile: deferred or immediate; bricks that are not timed cannot be escalated",
        ),
        (
            {"cv_threshold": "0.2"},
            "cv_threshold: has no effect while profile is off; it decides which timed bricks are escalated",
        ),
        (
            {"profile": "deferred", "escalate": "off", "rate_limit": "2"},
            "rate_limit: has no effect while escalate is off; it decides which timed bricks are escalated",
        ),
        ({"trace": "none", "steps": "embed"}, "steps: has no effect with trace: none; it says what is traced"),
        (
            {"trace": "none", "otlp_endpoint": "http://localhost:4318"},
            "otlp_endpoint: has no effect with trace: none; spans are what it is sent",
        ),
        (
            {"otlp_endpoint": "http://localhost:4317"},
            "otlp_endpoint: port 4317 is that of OTLP over gRPC; spans go over HTTP, whose port is 4318",
        ),
        (
            {"otlp_endpoint": "http://localhost:99999"},
            "otlp_endpoint: is no address: Port out of range 0-65535",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_honoured_is_refused_by_name(raw: dict[str, str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        COLLECTOR.validate(raw)
    assert str(caught.value) == message


def test_sending_spans_needs_what_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opentelemetry", EXPORTER):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OptionsError, match=r'needs opentelemetry: pip install "aorta-collectors\[otlp\]"'):
        COLLECTOR.validate({"otlp_endpoint": "http://localhost:4318"})


class TestPlan:
    def planned(self, tmp_path: Path, raw: dict[str, str], launch: Launch) -> Launch:
        return COLLECTOR.plan(launch, COLLECTOR.validate(raw), Capture(tmp_path / "numerics", "the trial"))

    def test_all_variables_are_those_of_the_block(self, tmp_path: Path) -> None:
        launch = Launch(("python", "train.py", "--lr", "2"))
        env = self.planned(tmp_path, {"trace": "layer", "steps": "a,b", "on_missing": "warn"}, launch).env
        ours = {name: value for name, value in env.items() if name.startswith("NUMERICS_")}
        options = set(load_schema("numerics.options")["properties"]) - {"on_missing"}
        assert set(ours) == {f"NUMERICS_{name.upper()}" for name in options} | {"NUMERICS_DIR", "NUMERICS_RUN_ID"}
        assert {name: value for name, value in ours.items() if value is not None} == {
            "NUMERICS_TRACE": "layer",
            "NUMERICS_STEPS": "a,b",
            "NUMERICS_DIR": str(tmp_path / "numerics"),
            "NUMERICS_RUN_ID": "the trial",
        }

    def test_both_collectors_arm_in_one_launch(self, tmp_path: Path) -> None:
        other = LayerNumerics()
        capture = Capture(tmp_path / "layer_numerics", "the trial")
        launch = Launch(("python", "train.py", "--lr", "2"))
        both = self.planned(tmp_path, {}, other.plan(launch, other.validate({}), capture))
        assert both.env["AORTA_COLLECTORS_ARM"] == (
            "aorta_collectors.layer_numerics.arming:arm aorta_collectors.numerics.arming:arm"
        )
        assert both.argv[-3:] == ("train.py", "--lr", "2")


class TestArmed:
    """Around a workload of this process."""

    def capture(self, directory: Path) -> Any:
        directory.mkdir(exist_ok=True)
        return lambda: Capture(directory, "the trial")

    def train(self, factor: float = 1.0) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        for step in range(3):
            model(torch.ones(2, 4) * (factor if step == 1 else 1.0)).sum().backward()

    def test_the_workload_is_observed(self, tmp_path: Path) -> None:
        with COLLECTOR.armed(COLLECTOR.validate({"trace": "layer"}), self.capture(tmp_path)):
            self.train()
        found = Left(tmp_path).summary
        assert (found["run_id"], found["steps_seen"], found["ended_by"]) == ("the trial", 3, "exit")

    def test_an_error_of_the_workload_stays_what_it_is(self, tmp_path: Path) -> None:
        def work() -> None:
            with COLLECTOR.armed(COLLECTOR.validate({}), self.capture(tmp_path)):
                self.train()
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            work()
        assert Left(tmp_path).summary["ended_by"] == "KeyError: 'mine'"

    @pytest.mark.parametrize("survives", [False, True])
    def test_one_that_was_stopped_is_no_exit_of_the_host(self, tmp_path: Path, survives: bool) -> None:
        options = COLLECTOR.validate({"trace": "layer", "on_bad": "stop"})
        other = LayerNumerics()

        def work() -> None:
            with (
                other.armed(other.validate({"NANLOG_SAMPLE_EVERY": "1"}), self.capture(tmp_path / "other")),
                COLLECTOR.armed(options, self.capture(tmp_path)),
            ):
                try:
                    self.train(float("nan"))
                except SystemExit:
                    if not survives:
                        raise

        with pytest.raises(WorkloadStopped, match=r"numerics stopped the line in step 2: nan in the forward of 0$"):
            work()
        assert Left(tmp_path).summary["stopped"]["layer"] == "0"
        found = summary(tmp_path / "other")
        assert found["first_bad"]["step"] == 2
        assert found["ended_by"].startswith("WorkloadStopped: numerics stopped the line")
