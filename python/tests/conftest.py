"""Every test runs on NumPy, on PyTorch CPU tensors and on PyTorch CUDA tensors; what a machine lacks is skipped."""

import numpy
import pytest

import frameworks


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
