"""Arrays of the frameworks under test, made from and turned back into NumPy."""

import ml_dtypes
import numpy
import pytest

bfloat16 = ml_dtypes.bfloat16


class NumPy:
    name = "numpy"

    def array(self, values):
        return values

    def numpy(self, array):
        return array

    def empty(self, shape, dtype):
        """Filled with something that no operator writes."""
        return numpy.full(shape, 77, dtype)

    def synchronize(self):
        pass


class Torch:
    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.name = f"torch-{device}"

    def array(self, values):
        if values.dtype == bfloat16:
            return self.array(values.view(numpy.int16)).view(self.torch.bfloat16)
        # Strides survive: tests pass slices of larger arrays.
        return self.torch.from_numpy(values.copy()).to(self.device)

    def numpy(self, tensor):
        tensor = tensor.detach().cpu()
        if tensor.dtype == self.torch.bfloat16:
            return tensor.contiguous().view(self.torch.int16).numpy().view(bfloat16)
        return tensor.numpy()

    def empty(self, shape, dtype):
        return self.array(numpy.full(shape, 77, dtype))

    def synchronize(self):
        if self.device != "cpu":
            self.torch.cuda.synchronize()


def get(name):
    if name == "numpy":
        return NumPy()
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if name == "torch-cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if name == "torch-cuda":
        import raggedmla

        if not {"cuda", "hip"} & set(raggedmla.info()["backends"]):
            pytest.skip("this build of raggedmla has no GPU backend")
    return Torch(torch, name.partition("-")[2])
