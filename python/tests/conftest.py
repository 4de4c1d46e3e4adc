"""Every test runs on NumPy, on PyTorch CPU tensors and on PyTorch CUDA tensors; what a machine lacks is skipped."""

import os

# Before anything loads a runtime: waiting OpenMP threads sleep (spinning ones take longer than the tests on a busy
# machine), and JAX leaves the GPU's memory to the others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy  # noqa: E402
import pytest  # noqa: E402

import frameworks  # noqa: E402


@pytest.fixture(params=["numpy", "torch-cpu", "torch-cuda"])
def framework(request):
    return frameworks.get(request.param)


@pytest.fixture(params=["torch-cpu", "torch-cuda"])
def torch_framework(request):
    return frameworks.get(request.param)


@pytest.fixture
def cuda():
    return frameworks.get("torch-cuda")


@pytest.fixture
def rng():
    return numpy.random.default_rng(7)
