"""What two runs did not have in common: what matters, and nothing that never is the same."""

from __future__ import annotations

from typing import Any

import pytest

from aorta_collectors.analysis.bundles.conditions import conditions_of

NATURE = (
    *("TENSORS_DIR", "TENSORS_RUN_ID", "TENSORS_KEEP", "MEMORY_DIR", "NUMERICS_DIR", "NANLOG_DIR", "MEMORY_STEPS"),
    *("AORTA_COLLECTORS_RUN", "INVESTIGATION_SEED", "INVESTIGATION_RUN", "TORCHINDUCTOR_CACHE_DIR", "MASTER_PORT"),
    *("NCCL_COMM_ID", "RANK", "LOCAL_RANK", "GROUP_RANK", "TRITON_CACHE_DIR", "MASTER_ADDR", "JOB_PID"),
)
MATTERS = (
    *(
        "CUDA_VISIBLE_DEVICES",
        "CUBLAS_WORKSPACE_CONFIG",
        "PYTHONHASHSEED",
        "TORCH_SEED",
        "NCCL_ALGO",
        "OMP_NUM_THREADS",
    ),
    *("WORLD_SIZE", "LD_PRELOAD", "ROCM_PATH", "HSA_OVERRIDE_GFX_VERSION", "CUDA_GRID"),
)


def generators(**changed: Any) -> dict[str, Any]:
    return {"torch_seed": 0, "torch_state": "t", "python_state": "p", "numpy_state": None, "devices": [], **changed}


def of_seeds(a: Any, b: Any) -> list[str]:
    """Which of them are told, of generators when torch had been imported and when a model was first called."""
    sides = ({"seeds": dict(zip(("armed", "first_call"), side, strict=True))} for side in (a, b))
    return [what for what, _, _ in conditions_of(*sides)]


@pytest.mark.parametrize("name", NATURE)
def test_what_no_two_runs_have_in_common_is_left_out(name: str) -> None:
    sides = ({"environment": {"cwd": value, "variables": {name: value}}} for value in "ab")
    assert conditions_of(*sides) == []


@pytest.mark.parametrize("name", MATTERS)
def test_variables_that_decide_something_are_told(name: str) -> None:
    sides = ({"environment": {"variables": {name: value}}} for value in "ab")
    assert conditions_of(*sides) == [(f"environment.variables.{name}", "a", "b")]
    assert conditions_of({"environment": {"variables": {}}}, {"environment": {"variables": {name: "b"}}})


def test_options_packages_settings_and_the_program_are_told() -> None:
    a = {"config": {"keep": "values"}, "world_size": 1, "environment": {"argv": ["a"], "packages": {"torch": "1"}}}
    b = {"config": {"keep": "digest"}, "world_size": 2, "environment": {"argv": ["b"], "packages": {"torch": "2"}}}
    assert [what for what, _, _ in conditions_of({**a, "pid": 1, "run_id": "x"}, {**b, "pid": 2, "run_id": "y"})] == [
        "config.keep",
        "environment.argv",
        "environment.packages.torch",
        "world_size",
    ]


def test_what_a_program_seeds_itself_is_not_held_against_it() -> None:
    """Before it seeds them, generators of no two processes are in one state."""
    unseeded = [generators(torch_seed=seed, torch_state=str(seed), python_state=str(seed)) for seed in (7, 8)]
    assert of_seeds((unseeded[0], generators()), (unseeded[1], generators())) == []


def test_a_seed_says_more_than_the_states_that_come_of_it() -> None:
    armed = generators()
    other = generators(torch_seed=1, torch_state="u")
    assert of_seeds((armed, generators()), (armed, other)) == ["seeds.torch_seed"]


def test_of_equal_seeds_the_state_tells_what_was_drawn() -> None:
    armed = generators(torch_state="before")
    assert of_seeds((armed, generators()), (armed, generators(torch_state="u"))) == ["seeds.torch_state"]


def test_pythons_generator_matters_where_the_program_uses_it() -> None:
    a, b = generators(python_state="a"), generators(python_state="b")
    assert of_seeds((a, a), (b, b)) == []
    assert of_seeds((a, generators(python_state="drawn")), (b, b)) == ["seeds.python_state"]


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        ({"numpy_state": "a"}, {"numpy_state": "b"}, []),
        ({"numpy_state": "a", "numpy_seeded": False}, {"numpy_state": "b", "numpy_seeded": False}, []),
        ({"numpy_state": "a", "numpy_seeded": True}, {"numpy_state": "b", "numpy_seeded": False}, ["numpy_state"]),
        ({"numpy_state": "a", "numpy_seeded": True}, {"numpy_state": "a", "numpy_seeded": True}, []),
        ({"numpy_state": None, "numpy_seeded": None}, {"numpy_state": "b", "numpy_seeded": True}, []),
    ],
)
def test_numpys_generator_matters_where_the_program_seeds_it(
    a: dict[str, Any], b: dict[str, Any], told: list[str]
) -> None:
    """Something else, such as torch.compile, may have imported it on one side alone."""
    sides = ((generators(), generators(**side)) for side in (a, b))
    assert of_seeds(*sides) == [f"seeds.{name}" for name in told]


def test_devices_one_by_one() -> None:
    def on(**changed: Any) -> dict[str, Any]:
        return generators(devices=[{"device": "cuda:0", "seed": 0, "state": "s", **changed}])

    assert of_seeds((None, on()), (None, on())) == []
    assert of_seeds((None, on()), (None, on(seed=1, state="t"))) == ["seeds.cuda:0_seed"]
    assert of_seeds((None, on()), (None, on(state="t"))) == ["seeds.cuda:0_state"]


def test_manifests_that_know_of_nothing_yet() -> None:
    assert conditions_of({"seeds": {"armed": None, "first_call": None}}, {"seeds": {}, "environment": {}}) == []
