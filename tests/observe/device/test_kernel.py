"""The kernels: their results in Triton's interpreter, and that they compile for the GPUs they are meant for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import PYTHON, ROOT, run

pytest.importorskip("triton", reason="the kernels are Triton's")

COMPILE = """
import itertools, re
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from aorta_collectors.observe.device import formats, kernel

def compiled(function, target, **constants):
    names = function.arg_names
    source = ASTSource(
        fn=function,
        signature={name: "constexpr" if name in constants else "i64" for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    return triton.compile(source, target=GPUTarget(*target), options={"num_warps": 4 if target[2] == 64 else 8})

common = dict(ALIGNED=True, BLOCK=2048)
targets = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
variants = (
    (16, formats.FLOAT, 0, 0, -1), (32, formats.FLOAT, 0, 0, 23), (32, formats.FLOAT, 2, 2, 23),
    (64, formats.UNSIGNED, 1, 4, 64),
)
for (name, target), (bits, kind, locate, dims, digits) in itertools.product(targets.items(), variants):
    one = compiled(
        kernel.reduce_one, target,
        BITS=bits, KIND=kind, LOCATE=locate, DIMS=dims, WIDE=dims == 4, DIGITS=digits, PROGRAMS=1024, **common,
    )
    text = one.asm.get("ptx") or one.asm["amdgcn"]
    if dims == 0:
        assert re.search(r"ld\\.global\\.v4|load_dwordx4", text), f"{name}: elements are loaded one by one"
    # What nobody asked for is not in the code, and where it was, float64 serves to add up tiles alone.
    num_double = len(re.findall(r"\\b\\w+(?:\\.\\w+)*[._]f64\\b", text))
    assert (num_double > 0) == (digits >= 0), name
for target, (locate, digits) in itertools.product(targets.values(), ((2, -1), (0, 3))):
    compiled(kernel.reduce_table, target, BITS=8, KIND=formats.FNUZ, LOCATE=locate, DIGITS=digits, **common)
"""

BIND = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from aorta_collectors.observe.device import kernel
from aorta_collectors.observe.device.launch import Kernels
from aorta_collectors.observe.limits import Limits

class NoDriver:
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0
    def get_current_target(self): return GPUTarget("cuda", 90, 32)

driver.set_active(NoDriver())
kernels = Kernels()
assert not kernels.interpreted
for values in (torch.zeros(1), torch.zeros(2, 8), torch.zeros(1 << 20), torch.ones(16).half(), torch.ones(64).half()):
    for limits in (Limits(), Limits(0.0), Limits(low=0.0, high=1e-40), Limits(float("inf"))):
        kernels.format(values.dtype)
        plan = kernels.plan(values, limits, False)
        for row in (0, 1, 16, 140_000_000_000_000):
            arguments = (row, row, *plan.numbers, *plan.dims, *plan.constants, 1024)
            kernel.reduce_one.run(*arguments, grid=(1,), warmup=True, **kernels._options)
compiled = len(kernel.reduce_one.device_caches[0][0])
assert compiled == 2, compiled
"""


@pytest.mark.timeout(600)
def test_the_kernels_find_what_torch_finds(tmp_path: Path) -> None:
    """In a process of its own: Triton interprets only if it is told so before it is imported."""
    tests = Path(__file__).with_name("interpreted.py")
    command = [
        PYTHON,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / "pyproject.toml"),
        str(tests),
    ]
    run(command, ROOT, {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}, timeout=600).ok()


def test_the_kernels_compile_without_the_gpu_being_there(tmp_path: Path) -> None:
    script = tmp_path / "compile.py"
    script.write_text(COMPILE)
    env = {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    run([PYTHON, "-W", "ignore", str(script)], tmp_path, env).ok()


def test_a_kernel_is_compiled_once_whatever_the_sizes_the_limits_and_the_addresses(tmp_path: Path) -> None:
    script = tmp_path / "bind.py"
    script.write_text(BIND)
    env = {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    run([PYTHON, "-W", "error", str(script)], tmp_path, env).ok()


def test_nothing_imports_triton_before_a_tensor_on_a_gpu_is_read(tmp_path: Path) -> None:
    program = (
        "import sys, torch, aorta_collectors.observe.device.graphs as graphs\n"
        "from aorta_collectors.observe.limits import Limits\n"
        "rows = graphs.DeviceRows(); rows.queue(torch.ones(3), Limits(), True); rows.seal().stats()\n"
        "assert 'triton' not in sys.modules\n"
    )
    run([PYTHON, "-c", program], tmp_path, {"PYTHONPATH": str(ROOT)}).ok()
