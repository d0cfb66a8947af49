"""Paths as a model's author knows them: without the segments of wrappers, with all that is the author's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.optim.swa_utils import AveragedModel

from aorta_collectors.observe.paths import module_path
from tests.observe.watching import EVERYTHING, one_process_group, two_layers, watching


@pytest.fixture
def process_group() -> Iterator[None]:
    with one_process_group():
        yield


def paths(model: nn.Module) -> dict[str, str]:
    """Raw path -> short path of every module below."""
    modules = dict(model.named_modules())
    return {path: module_path(path, modules) for path in modules}


PLAIN = {"": "(root)", "0": "0", "1": "1", "2": "2"}


class Own(nn.Module):
    """Calls its only part `module`, as a wrapper would."""

    def __init__(self) -> None:
        super().__init__()
        self.module = two_layers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.module(x)
        return out


class TestWrappers:
    """The same short paths with the wrapper as without it."""

    def test_distributed_data_parallel(self, process_group: None) -> None:
        short = paths(nn.parallel.DistributedDataParallel(two_layers()))
        assert short == {"": "(root)", **{f"module.{path}".rstrip("."): name for path, name in PLAIN.items()}}

    def test_data_parallel_and_an_averaged_model(self) -> None:
        for wrapped in (nn.DataParallel(two_layers()), AveragedModel(two_layers())):
            assert paths(wrapped)["module.2"] == "2"
            assert paths(wrapped)["module"] == "(root)"

    def test_a_compiled_model(self) -> None:
        compiled: Any = torch.compile(two_layers(), backend="eager")
        assert paths(compiled) == {"": "(root)", **{f"_orig_mod.{path}".rstrip("."): n for path, n in PLAIN.items()}}

    def test_a_checkpointed_part(self) -> None:
        model = nn.Sequential(checkpoint_wrapper(two_layers()), nn.Linear(1, 1))
        assert paths(model)["0._checkpoint_wrapped_module.2"] == "0.2"
        assert paths(model)["0._checkpoint_wrapped_module"] == "0"
        assert paths(model)["1"] == "1"

    def test_one_wrapper_around_another(self, process_group: None) -> None:
        inner: Any = torch.compile(nn.Sequential(checkpoint_wrapper(two_layers())), backend="eager")
        model = nn.parallel.DistributedDataParallel(inner)
        assert paths(model)["module._orig_mod.0._checkpoint_wrapped_module.2"] == "0.2"

    @pytest.mark.filterwarnings("ignore:FSDP is switching")
    def test_the_first_generation_of_fsdp(self, process_group: None) -> None:
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(two_layers(), device_id=torch.device("cpu"), use_orig_params=True)
        assert paths(model)["_fsdp_wrapped_module.2"] == "2"

    @pytest.mark.filterwarnings("ignore")
    def test_distributed_model_parallel(self, process_group: None) -> None:
        from torchrec.distributed.model_parallel import DistributedModelParallel

        model = DistributedModelParallel(two_layers(), device=torch.device("cpu"))
        (raw,) = [path for path in paths(model) if path.endswith("2")]
        assert raw.startswith("_dmp_wrapped_module")
        assert paths(model)[raw] == "2"


class TestNamesOfTheAuthor:
    """What only looks like a wrapper's segment stays."""

    def test_a_part_called_module(self) -> None:
        assert paths(Own())["module.2"] == "module.2"
        assert paths(nn.Sequential(Own()))["0.module.2"] == "0.module.2"

    def test_a_part_called_module_inside_a_wrapper(self, process_group: None) -> None:
        assert paths(nn.parallel.DistributedDataParallel(Own()))["module.module.2"] == "module.2"
        assert paths(AveragedModel(Own()))["module.module"] == "module"

    @given(st.lists(st.sampled_from(["encoder", "0", "module", "layers", "modul", "orig_mod"]), max_size=5))
    def test_a_plain_tree_keeps_every_segment(self, segments: list[str]) -> None:
        root = model = nn.Module()
        for segment in segments:
            part = nn.Module()
            model.add_module(segment, part)
            model = part
        path = ".".join(segments)
        assert module_path(path, dict(root.named_modules())) == (path or "(root)")


class TestInObservations:
    """Both names stand in what is observed: the raw one for torch, the short one for people."""

    def test_the_raw_name_is_the_layer_and_the_short_one_the_path(self, process_group: None) -> None:
        with watching(EVERYTHING) as (_, seen):
            model = nn.parallel.DistributedDataParallel(Own())
            model(torch.ones(2, 4)).sum().backward()
        sites = {(one.site.layer, one.site.module_path) for one in seen.by_step[1]}
        assert ("module.module.2", "module.2") in sites
        assert ("(root)", "(root)") in sites
        assert ("module", "(root)") in sites

    def test_layers_of_a_further_root_keep_its_name_in_both(self) -> None:
        first, second = AveragedModel(two_layers()), AveragedModel(nn.Sequential(nn.Linear(1, 1)))
        with watching() as (_, seen):
            second(first(torch.ones(2, 4)))
        assert [(one.site.layer, one.site.module_path) for one in seen.by_step[1] if one.site.role == "act"] == [
            ("module.0", "0"),
            ("module.2", "2"),
            ("AveragedModel#2.module.0", "AveragedModel#2.0"),
        ]
