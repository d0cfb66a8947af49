"""What `new` says of questions that cannot be answered, and of places in a command that nothing fills."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from aorta_collectors.analysis.bundles.criterion import BITWISE, ULP, Criterion
from aorta_collectors.errors import OptionsError
from aorta_collectors.investigate.agreement import choice_text, criterion_for
from aorta_collectors.investigate.described import design_lines
from aorta_collectors.investigate.design import Design
from tests.investigate.support import declared, investigate

ALONE = {"baseline": "python train.py"}


class TestDoubts:
    @pytest.mark.parametrize(
        ("kind", "changed", "told"),
        [
            ("values", {"commands": ALONE}, "there is no candidate, and nothing that the baseline's tensors"),
            ("timing", {"commands": ALONE}, "there is no candidate, and how long"),
            ("memory", {"collect": ("tensors",)}, "tensors cannot tell what grows; memory does (--collect)."),
            ("values", {"collect": ("memory",)}, "memory cannot tell whether tensors agree; tensors does (--collect)."),
            ("finite", {"collect": ("memory",)}, "layer_numerics and tensors do (--collect)."),
            (
                "values",
                {"commands": {"baseline": "python train.py", "candidate": "python train.py --scale={step}"}},
                "{step} is handed on as it stands; {seed} and {repetition} are replaced in each run, and nothing else.",
            ),
        ],
    )
    def test_what_stands_in_the_way(self, tmp_path: Path, kind: str, changed: dict[str, Any], told: str) -> None:
        (doubt,) = declared(tmp_path / "root", tmp_path, kind=kind, **changed).doubts
        assert told in doubt

    @pytest.mark.parametrize(
        ("kind", "changed"),
        [
            ("values", {}),
            ("finite", {"commands": ALONE}),
            ("memory", {"commands": ALONE}),
            ("timing", {"collect": ("tensors",)}),
            ("values", {"commands": ALONE, "design": Design.of("values", repetitions=2)}),
            ("values", {"commands": {"baseline": "torchrun --nproc_per_node=2 train.py"}}),
            ("values", {"commands": {"baseline": "python -m torch.distributed.run --nproc_per_node=2 train.py"}}),
            (
                "values",
                {"commands": {"baseline": "python train.py {seed}", "candidate": "bash -c 'echo ${HOME} {seed}'"}},
            ),
        ],
    )
    def test_what_can_be_answered_needs_no_word(self, tmp_path: Path, kind: str, changed: dict[str, Any]) -> None:
        assert declared(tmp_path / "root", tmp_path, kind=kind, **changed).doubts == ()

    def test_the_command_prints_them_and_declares_nevertheless(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        words = ("--question", "a", "--criterion", "b", "--baseline", "python train.py {step}")
        out = investigate(tmp_path, "new", "root", *words).ok().out
        assert [line.partition(":")[0] for line in out.splitlines()[-3:]] == ["note", "note", "Next"]
        assert (tmp_path / "root" / "metadata.json").exists()


class TestAgreement:
    def test_what_is_not_asked_for_is_the_default_and_declared_too(self, tmp_path: Path) -> None:
        metadata = declared(tmp_path / "root", tmp_path, kind="values").investigation.metadata
        assert metadata["agreement"] == {
            "kind": "tolerance",
            "ulps": 0,
            "rtol": None,
            "atol": None,
            "equal_nan": False,
        }
        assert f"agreement:  {Criterion().describe()}" in design_lines(
            metadata, dict.fromkeys(ALONE | {"candidate": ""}, ""), ()
        )

    def test_where_no_tensors_are_collected_there_is_none_and_none_can_be_asked_for(self, tmp_path: Path) -> None:
        assert "agreement" not in declared(tmp_path / "root", tmp_path, kind="timing").investigation.metadata
        with pytest.raises(OptionsError, match="numerics collects none; --collect tensors does"):
            declared(tmp_path / "other", tmp_path, kind="timing", agreement=Criterion(BITWISE))

    def test_every_other_criterion_is_told_and_the_declared_one_is_not(self) -> None:
        criteria = [Criterion(BITWISE), Criterion(ULP, 4), Criterion(ULP, 5), Criterion(rtol=1e-3), Criterion()]
        for declared_one, chosen in itertools.product(criteria, [*criteria, None]):
            metadata = {"agreement": {name: getattr(declared_one, name) for name in _FIELDS}}
            used = criterion_for(metadata, chosen)
            assert used == (chosen or declared_one)
            told = choice_text(metadata, used)
            assert bool(told) is (used != declared_one)
            assert not told or (used.describe() in told and f"declared was: {declared_one.describe()}." in told)

    def test_several_at_once_are_wrong_usage(self, tmp_path: Path) -> None:
        words = ("--question", "a", "--criterion", "b", "--baseline", "true", "--bitwise", "--ulp", "3")
        assert investigate(tmp_path, "new", "root", *words).code == 2
        assert not (tmp_path / "root").exists()


_FIELDS = ("kind", "ulps", "rtol", "atol", "equal_nan")
