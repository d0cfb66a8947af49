"""Files of full tensors: what is in them, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.layers.layer_stats import LayerStats
from aorta_collectors.numerics.layers.payload import Payload
from aorta_collectors.numerics.part import StepTrace
from aorta_collectors.observe.tensor_stats import values_of
from tests.numerics.layer_hooks import Driven, small_model
from tests.observe.device.fakes import FakeDevice


def payload(directory: Path, most: int = 1 << 20, **given: Any) -> Payload:
    config = Config(trace="payload", payload_max_bytes=most, stats_every=1)
    return Payload(config, lambda: (directory, "rank0"), _no_warning, **given)


def _no_warning(text: str) -> None:
    raise AssertionError(text)


def keep(kept: Payload, name: str, tensor: Tensor, seq: int = 0) -> None:
    kept.keep(name, "forward", "", tensor, values_of(tensor)[0], seq)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class TestOfAModel:
    def test_outputs_and_gradients_of_each_step(self, tmp_path: Path) -> None:
        model = small_model()
        kept = payload(tmp_path)
        watched = Driven(LayerStats(Config(trace="payload", stats_every=1), _no_warning, payload=kept), model)
        outputs = []
        for step in (1, 2):
            with watched.step():
                outputs.append(model(torch.randn(3, 4) * step))
                outputs[-1].sum().backward()
            kept.step_ended(watched.traces[-1])
        assert files(tmp_path) == ["payload_rank0_step1.safetensors", "payload_rank0_step2.safetensors"]
        second = load_file(tmp_path / "payload_rank0_step2.safetensors")
        assert sorted(second) == sorted(
            f"{layer}|{direction}|" for layer in ("(root)", "0", "1", "2") for direction in ("forward", "backward")
        )
        assert torch.equal(second["(root)|forward|"], outputs[1].detach())
        assert torch.equal(second["2|backward|"], torch.ones(3, 2))
        with safe_open(tmp_path / "payload_rank0_step2.safetensors", "pt") as file:
            told = file.metadata()
        assert told["step"] == "2"
        about = json.loads(told["1|forward|"])
        line = watched.line("1", step=2)
        assert about == {"seq": line["seq"], "dtype": "float32", "shape": [3, 8]}
        assert watched.line("1", step=2)["max"] == second["1|forward|"].max().item()
        fields = kept.fields()["payload"]
        assert fields == {
            "files": 2,
            "tensors": 16,
            "bytes": 2 * 2 * 4 * (2 * 24 + 2 * 6),
            "tensors_dropped": 0,
            "bytes_dropped": 0,
        }

    def test_a_second_call_has_a_name_of_its_own(self, tmp_path: Path) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = nn.Linear(2, 2)

            def forward(self, given: Tensor) -> Tensor:
                result: Tensor = self.part(self.part(given))
                return result

        kept = payload(tmp_path)
        watched = Driven(LayerStats(Config(trace="payload", stats_every=1), _no_warning, payload=kept), Twice())
        with watched.step():
            watched.model(torch.randn(1, 2))
        kept.step_ended(watched.traces[-1])
        assert sorted(load_file(tmp_path / "payload_rank0_step1.safetensors")) == [
            "(root)|forward|",
            "part|forward|",
            "part|forward||2",
        ]


class TestKept:
    def test_as_it_was_whatever_it_is(self, tmp_path: Path) -> None:
        base = torch.arange(12.0).view(3, 4)
        tensors = {
            "transposed": base.t(),
            "shared": base[1:],
            "strided": base[:, ::2],
            "expanded": base[:1].expand(5, 4),
            "bfloat16": base.bfloat16(),
            "float8": base.to(torch.float8_e4m3fn),
            "bool": base > 3,
            "int64": base.long(),
            "scalar": base[1, 1],
            "needs a gradient": base.clone().requires_grad_(),
        }
        expected = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        kept = payload(tmp_path)
        for seq, (name, tensor) in enumerate(tensors.items()):
            keep(kept, name, tensor, seq)
        keep(kept, "complex", torch.tensor([1 + 2j]))
        keep(kept, "nested", torch.nested.nested_tensor([torch.ones(2), torch.zeros(1)]))
        base.zero_()
        kept.step_ended(StepTrace(1))
        found = load_file(tmp_path / "payload_rank0_step1.safetensors")
        for name, tensor in expected.items():
            read = found[f"{name}|forward|"]
            assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(read.double(), tensor.double()), name
        assert found["complex|forward|"].tolist() == [[1.0, 2.0]]
        assert found["nested|forward|"].tolist() == [1.0, 1.0, 0.0]

    def test_no_more_than_was_allowed_and_whole_tensors_only(self, tmp_path: Path) -> None:
        kept = payload(tmp_path, most=100)
        for size in (10, 20, 10, 5, 1):  # of four bytes
            keep(kept, f"{size}", torch.ones(size))
        kept.step_ended(StepTrace(1))
        keep(kept, "later", torch.ones(2))
        kept.step_ended(StepTrace(2))
        assert files(tmp_path) == ["payload_rank0_step1.safetensors"]
        fields = kept.fields()["payload"]
        assert (fields["tensors"], fields["bytes"]) == (3, 40 + 40 + 20)
        assert (fields["tensors_dropped"], fields["bytes_dropped"]) == (3, 80 + 4 + 8)

    def test_not_where_there_is_no_directory(self, tmp_path: Path) -> None:
        warnings: list[str] = []
        kept = Payload(Config(trace="payload"), lambda: (tmp_path / "none", "rank0"), warnings.append)
        for step in (1, 2):
            keep(kept, "layer", torch.ones(2))
            kept.step_ended(StepTrace(step))
        assert len(warnings) == 1
        assert "not written" in warnings[0]
        assert kept.fields()["payload"]["tensors_dropped"] == 2


class TestOnADevice:
    def test_the_file_is_written_once_the_copy_has_arrived(self, tmp_path: Path) -> None:
        device = FakeDevice()
        kept = payload(tmp_path, device_of=lambda _: device, host=())
        with device.no_waiting():
            keep(kept, "layer", torch.tensor([1.0, 2.0, 3.0]))
            kept.step_ended(StepTrace(1))
            assert files(tmp_path) == []
            device.advance()
            kept.step_ended(StepTrace(2))
        assert load_file(tmp_path / "payload_rank0_step1.safetensors")["layer|forward|"].tolist() == [1.0, 2.0, 3.0]
