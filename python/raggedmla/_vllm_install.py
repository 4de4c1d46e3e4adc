"""Puts RaggedMLA's functions in the place of vLLM's, where the signatures agree, and back."""

import dataclasses
import importlib
import inspect
import logging
import os
import sys
from typing import Any

_LOG = logging.getLogger("raggedmla.vllm")

TARGETS = {
    "vllm.v1.attention.ops.rocm_aiter_mla_sparse": (
        "build_ragged_indices_from_dense",
        "rocm_sparse_attn_prefill",
        "_rocm_sparse_attn_prefill_ragged_triton",
        "_rocm_sparse_attn_prefill_triton",
        "rocm_sparse_attn_decode",
        "_rocm_sparse_attn_decode_ragged_triton",
        "_rocm_sparse_attn_decode_triton",
    ),
    "vllm.models.deepseek_v4.amd.rocm": (
        "_copy_ragged_to_graph_buffers",
        "compute_global_topk_ragged_indices_and_indptr",
    ),
}


@dataclasses.dataclass
class _Replacement:
    module: Any
    name: str
    original: Any


_replaced: list[_Replacement] = []


def register() -> None:
    """vLLM's plugin loader calls this in every process; without RAGGEDMLA_VLLM=1 it does nothing."""
    if os.environ.get("RAGGEDMLA_VLLM") == "1":
        install()


def install(targets: dict[str, tuple[str, ...]] = TARGETS) -> dict[str, str]:
    """Replaces what can be replaced and logs one line. Returns what was not replaced: name -> reason."""
    from . import vllm as ours

    left: dict[str, str] = {}
    done: list[str] = []
    for module_name, names in targets.items():
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # vLLM's modules fail in many ways on a machine they are not made for
            left[module_name] = f"cannot be imported ({error})"
            continue
        for name in names:
            reason = _replace(module, name, getattr(ours, name))
            if reason is None:
                done.append(name)
            else:
                left[name] = reason
    kept = "; ".join(f"{name} {reason}" for name, reason in left.items()) or "nothing"
    _LOG.warning("raggedmla replaced %s; left as it was: %s", ", ".join(done) or "nothing", kept)
    return left


def uninstall() -> None:
    """Puts vLLM's own functions back."""
    while _replaced:
        replacement = _replaced.pop()
        setattr(replacement.module, replacement.name, replacement.original)


def installed() -> list[str]:
    """The places where a function is replaced at present, as module.name."""
    return [f"{entry.module.__name__}.{entry.name}" for entry in _replaced]


def _replace(module: Any, name: str, own: Any) -> str | None:
    """The reason why not, or None."""
    original = getattr(module, name, None)
    if original is None:
        return "does not exist in this version"
    if original is own:
        return "is replaced already"
    difference = _signature_difference(original, own)
    if difference:
        return f"has another signature ({difference})"
    # Modules that imported the function by name hold it themselves.
    root = module.__name__.partition(".")[0]
    for holder_name, holder in list(sys.modules.items()):
        if holder_name.partition(".")[0] == root and holder.__dict__.get(name) is original:
            _replaced.append(_Replacement(holder, name, original))
            setattr(holder, name, own)
    return None


def _signature_difference(original: Any, own: Any) -> str:
    """What keeps a call made for `original` from meaning the same to `own`: '' if nothing."""
    expected = list(inspect.signature(original).parameters.values())
    offered = list(inspect.signature(own).parameters.values())
    for position, parameter in enumerate(expected):
        if position >= len(offered) or offered[position].name != parameter.name:
            return f"argument {position + 1} is {parameter.name}"
        if parameter.default is not inspect.Parameter.empty and offered[position].default != parameter.default:
            return f"default of {parameter.name} is {parameter.default!r}"
    for parameter in offered[len(expected):]:
        if parameter.default is inspect.Parameter.empty:
            return f"no argument {parameter.name}"
    return ""
