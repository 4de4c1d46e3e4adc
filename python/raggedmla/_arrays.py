"""What the extension module needs to know about array frameworks by name. Imports none that the caller has not."""

import sys


def empty(like, shape, dtype):
    """An uninitialised array of `like`'s framework and device. `dtype` is a name of the library's (f32, bf16, ...)."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        if not _torch_dtypes:
            _torch_dtypes.update({name: getattr(torch, torch_name) for name, torch_name in _FRAMEWORK_NAMES.items()})
        return like.new_empty(size=shape, dtype=_torch_dtypes[dtype])  # without `size=` twice as slow
    if _framework(like) == "cupy":
        import cupy

        return cupy.empty(shape, dtype=_numpy_dtype(dtype))
    if _framework(like) == "numpy" or _is_cpu_jax(like):
        import numpy

        return numpy.empty(shape, dtype=_numpy_dtype(dtype))
    raise TypeError(f"cannot make an output beside a {type(like).__qualname__}: pass the array to write into")


def current_stream(array, device):
    """The handle of the current stream of the array's framework; 0, the default stream, where it has none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.cuda.current_stream(device).cuda_stream
    if _framework(array) == "cupy":
        import cupy

        return cupy.cuda.get_current_stream().ptr
    return 0


_FRAMEWORK_NAMES = {"f32": "float32", "bf16": "bfloat16", "u8": "uint8", "i32": "int32", "i64": "int64",
                    "boolean": "bool"}

_torch_dtypes: dict = {}


def _numpy_dtype(dtype):
    if dtype == "bf16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return _FRAMEWORK_NAMES[dtype]


def _framework(array):
    return type(array).__module__.partition(".")[0]


def _is_cpu_jax(array):
    return _framework(array) in ("jax", "jaxlib") and all(device.platform == "cpu" for device in array.devices())
