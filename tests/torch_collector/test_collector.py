"""A collector of somebody else's, made with TorchCollector: in a command's process, and in the host's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aorta_collectors.api import Capture, Collector, Launch, OptionsError, WorkloadStopped
from aorta_collectors.environment import ARM_VARIABLE
from aorta_collectors.torch_collector.collector import TorchCollector
from tests.observe.lifecycle.told import train, two_layers
from tests.support import PYTHON, ROOT, run
from tests.torch_collector.pulse import ARM_FUNCTION, PROCESS, Config, Pulse

TRAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def summary(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "summary_rank0.json").read_text())
    return found


class TestOptions:
    def test_the_schema_is_that_of_the_configuration(self) -> None:
        assert Pulse.schema == Config.schema()

    def test_a_block_is_decoded_and_checked(self) -> None:
        assert Pulse().validate({"points": "after_step, after_forward", "most": "3"}).values == {
            "points": ["after_step", "after_forward"],
            "most": 3,
        }

    @pytest.mark.parametrize(
        ("raw", "path", "message"),
        [
            ({"points": "later"}, "points[0]", 'must be one of before_forward, after_forward, after_step, got "later"'),
            ({"mosts": "1"}, "mosts", "unknown option; did you mean most?"),
            ({"most": "-1"}, "most", "must be an integer >= 0, got -1"),
            ({"most": "0", "points": "after_step"}, "points", "has no effect with most: 0"),
        ],
    )
    def test_what_is_wrong_is_said(self, raw: dict[str, str], path: str, message: str) -> None:
        with pytest.raises(OptionsError) as caught:
            Pulse().validate(raw)
        assert (caught.value.path, caught.value.message) == (path, message)

    def test_what_a_receipt_has_kept_is_not_held_against_itself(self) -> None:
        assert Pulse().recall({"most": "0", "points": "after_step"}).values["most"] == 0


class TestPlan:
    def test_variables_of_options_are_set_or_taken_away(self, tmp_path: Path) -> None:
        options = Pulse().validate({"most": "3", "on_missing": "warn"})
        launch = Pulse().plan(Launch.of_this_process(["python", "train.py"]), options, Capture(tmp_path, "a run"))
        assert {name: launch.env.get(name) for name in launch.env if name.startswith("PULSE_")} == {
            "PULSE_POINTS": None,
            "PULSE_MOST": "3",
            "PULSE_ENDS": None,
            "PULSE_DIR": str(tmp_path),
            "PULSE_RUN_ID": "a run",
        }

    def test_a_commands_process_is_armed_by_them(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(TRAIN)
        env = {ARM_VARIABLE: ARM_FUNCTION, "PYTHONPATH": str(ROOT), "PULSE_RUN_ID": "a run", "PULSE_DIR": "here"}
        env |= {"PULSE_POINTS": "after_step,before_forward", "PULSE_MOST": "2", "PULSE_ENDS": "perhaps"}
        ran = run([PYTHON, "-m", "aorta_collectors.frontend", "train.py"], tmp_path, env).ok()
        found = summary(tmp_path / "here")
        assert found["pulse"] == {"before_forward": 2, "after_step": 2}
        assert (found["status"], found["run_id"], found["steps_seen"]) == ("complete", "a run", 3)
        assert found["warnings"] == ['PULSE_ENDS: must be "1" (on) or "0" (off), got "perhaps"; the default is used']
        assert "pulse" in ran.err

    def test_where_nothing_is_asked_for_nothing_is_armed(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(TRAIN)
        env = {ARM_VARIABLE: ARM_FUNCTION, "PYTHONPATH": str(ROOT), "PULSE_DIR": "here", "PULSE_MOST": "0"}
        assert run([PYTHON, "-m", "aorta_collectors.frontend", "train.py"], tmp_path, env).ok().err == ""
        assert not (tmp_path / "here").exists()


class TestInTheHostsProcess:
    def test_a_workload_is_observed_from_its_first_model_to_its_end(self, tmp_path: Path) -> None:
        with Pulse().armed(Pulse().validate({}), lambda: Capture(tmp_path, "a run")):
            train(two_layers(), 2)
        found = summary(tmp_path)
        assert (found["pulse"], found["run_id"], found["ended_by"]) == ({"after_forward": 2}, "a run", "exit")
        assert not torch.nn.modules.module._global_forward_hooks

    def test_its_own_end_is_told_and_raised_again(self, tmp_path: Path) -> None:
        with (
            pytest.raises(ValueError, match="mine"),
            Pulse().armed(Pulse().validate({}), lambda: Capture(tmp_path, "a run")),
        ):
            _fails()
        assert summary(tmp_path)["ended_by"] == "ValueError: mine"

    def test_what_the_collector_has_ended_is_said(self, tmp_path: Path) -> None:
        options = Pulse().validate({"ends": "1"})
        with (
            pytest.raises(WorkloadStopped, match="the pulse has ended it"),
            Pulse().armed(options, lambda: Capture(tmp_path, "a run")),
        ):
            train(two_layers(), 1)

    def test_one_that_cannot_be_armed_leaves_the_workload_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        class Broken(Pulse):
            name = "broken"

            def make_session(self, config: Any, directory: Any, run_id: Any) -> Any:
                raise OSError("no room")

        with Broken().armed(Broken().validate({}), lambda: Capture(tmp_path, "a run")):
            train(two_layers(), 1)
        assert capsys.readouterr().err == "aorta-collectors: could not arm broken: OSError: no room\n"


def _fails() -> None:
    train(two_layers(), 1)
    raise ValueError("mine")


class TestDefinition:
    def test_what_several_collectors_share_needs_no_name(self) -> None:
        class Base(Collector, abstract=True):
            """Nothing yet."""

        assert not hasattr(Base, "name")

    def test_a_collector_does(self) -> None:
        with pytest.raises(TypeError, match="needs a class attribute name: str"):

            class Nameless(TorchCollector):
                config = Config
                process = replace(PROCESS)
                arm_function = ARM_FUNCTION
