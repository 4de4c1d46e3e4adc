"""Types of the public interface."""

from typing import Any, Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of PyTorch, JAX, CuPy or another framework that exports DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


@runtime_checkable
class SupportsArrayInterface(Protocol):
    """A NumPy array (bfloat16 comes from ml_dtypes)."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Array: TypeAlias = SupportsDLPack | SupportsArrayInterface
