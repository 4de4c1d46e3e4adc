"""Every wrong argument is refused with ValueError or TypeError and a message that names it; nothing crashes.

One function of the package a section; a case is a call that is right but for one argument.
"""

import ml_dtypes
import numpy
import pytest

import raggedmla

HUGE = 2**70
RIGHT = object()  # stands for an argument that is as it should be


class BrokenArrayInterface:
    __array_interface__ = {"data": b"bytes", "shape": (1,), "typestr": "<i4", "version": 3}


class RaisingArrayInterface:
    @property
    def __array_interface__(self):
        raise RuntimeError("no")


class RaisingDLPack:
    def __dlpack__(self, **_):
        raise BufferError("no")

    def __dlpack_device__(self):
        return (1, 0)


def bf16(*shape):
    return numpy.zeros(shape, ml_dtypes.bfloat16)


def i32(*shape):
    return numpy.zeros(shape, numpy.int32)


def read_only(array):
    array.flags.writeable = False
    return array


# ---- right calls -----------------------------------------------------------------------------------------------------


def attention(kv=RIGHT, indices=RIGHT, lengths=None, **changes):
    rows = raggedmla.DenseRows(i32(2, 3) if indices is RIGHT else indices, lengths)
    arguments = {"q": bf16(2, 4, 512),
                 "segments": [(raggedmla.DenseKv(bf16(8, 512) if kv is RIGHT else kv), rows)]} | changes
    return raggedmla.attention(**arguments)


def attention_paged(pages=RIGHT, **changes):
    kv = raggedmla.PagedKv(numpy.zeros((2, 64, 584), numpy.uint8) if pages is RIGHT else pages, **changes)
    return raggedmla.attention(bf16(2, 4, 512), [(kv, raggedmla.DenseRows(i32(2, 3)))])


def attention_ragged(indices=RIGHT, indptr=RIGHT):
    rows = raggedmla.RaggedRows(i32(8) if indices is RIGHT else indices, i32(3) if indptr is RIGHT else indptr)
    return raggedmla.attention(bf16(2, 4, 512), [(raggedmla.DenseKv(bf16(8, 512)), rows)])


def attention_range(**changes):
    arguments = {"first": i32(2), "count": i32(2), "query_start": numpy.array([0, 2]), "row_base": i32(1)} | changes
    rows = raggedmla.RangeRows(**arguments)
    return raggedmla.attention(bf16(2, 4, 512), [(raggedmla.DenseKv(bf16(8, 512)), rows)])


def attention_table(block_table):
    return attention_range(row_base=None, block_table=block_table)


def merge_states(**changes):
    arguments = {"partial_out": bf16(2, 3, 4, 512), "partial_lse": numpy.zeros((2, 3, 4), numpy.float32)} | changes
    return raggedmla.merge_states(**arguments)


def build_ragged(**changes):
    return raggedmla.build_ragged(**({"indices": i32(2, 3), "lengths": i32(2)} | changes))


def translate_topk(**changes):
    arguments = {"topk": i32(2, 3), "request_of_query": i32(2), "block_table": i32(1, 4)} | changes
    return raggedmla.translate_topk(**arguments)


def requests(query_start=(0, 2), sequence_lengths=(9,)):
    return raggedmla.RequestQueries(numpy.array(query_start, int), numpy.array(sequence_lengths, int))


def window_rows(**changes):
    return raggedmla.window_rows(**({"queries": requests(), "query_count": 2} | changes))


def compressed_rows(**changes):
    return raggedmla.compressed_rows(**({"queries": requests(), "query_count": 2} | changes))


def window_of_requests(query_start=(0, 2), sequence_lengths=(9,)):
    query_start, sequence_lengths = (numpy.array(x, int) if isinstance(x, tuple) else x
                                     for x in (query_start, sequence_lengths))
    return window_rows(queries=raggedmla.RequestQueries(query_start, sequence_lengths))


def window_of_positions(positions=RIGHT, request_of_query=RIGHT):
    positions, request_of_query = (i32(2) if x is RIGHT else x for x in (positions, request_of_query))
    return window_rows(queries=raggedmla.PositionedQueries(positions, request_of_query))


def window_list(block_table):
    return window_rows(form="dense", block_table=block_table)


def compressed_list(block_table):
    return compressed_rows(form="dense", width=4, block_table=block_table)


def combine(**changes):
    arguments = {"topk": i32(2, 3), "queries": requests(), "gathered": i32(1), "query_count": 2,
                 "rows_per_request": 16} | changes
    return raggedmla.combine(**arguments)


def copy_to_graph_buffers(**changes):
    arguments = {"source": raggedmla.RaggedRows(i32(8), i32(3)), "indices": i32(8), "indptr": i32(3)} | changes
    return raggedmla.copy_to_graph_buffers(**arguments)


def pages():
    return raggedmla.PagedKv(numpy.zeros((2, 64, 584), numpy.uint8))


def quantize_rows(**changes):
    return raggedmla.quantize_rows(**({"rows": bf16(3, 512), "slots": i32(3), "cache": pages()} | changes))


def dequantize_rows(**changes):
    return raggedmla.dequantize_rows(**({"source": pages(), "slots": i32(3)} | changes))


def gather_rows(**changes):
    arguments = {"source": raggedmla.PagedKv(bf16(2, 4, 512)), "block_table": i32(1, 2), "first": i32(1),
                 "count": i32(1), "out": bf16(1, 8, 512)} | changes
    return raggedmla.gather_rows(**arguments)


def reserve(**changes):
    return raggedmla.Workspace().reserve(**({"bytes": 100, "like": i32(1)} | changes))


def preload(device):
    return raggedmla.preload(device)


@pytest.mark.parametrize("call", [attention, attention_paged, attention_ragged, attention_range, merge_states,
                                  build_ragged, translate_topk, window_rows, compressed_rows, combine,
                                  copy_to_graph_buffers, quantize_rows, dequantize_rows, gather_rows, reserve])
def test_the_calls_are_right_but_for_the_wrong_argument(call):
    call()


# ---- wrong arguments -------------------------------------------------------------------------------------------------

NOT_ARRAYS = [3, [[1, 2]], "1234", BrokenArrayInterface(), RaisingArrayInterface(), RaisingDLPack()]


def case_id(value):
    if isinstance(value, (numpy.ndarray, tuple)):
        return ""
    return value.__name__ if callable(value) else str(value)


F32 = numpy.float32
# Every argument that is an array, with one that is right.
ARRAYS = [
    (attention, "q", bf16(2, 4, 512)), (attention, "kv", bf16(8, 512)), (attention, "indices", i32(2, 3)),
    (attention_paged, "pages", numpy.zeros((2, 64, 584), numpy.uint8)), (attention_ragged, "indices", i32(8)),
    (attention_ragged, "indptr", i32(3)), (attention_range, "first", i32(2)), (attention_range, "count", i32(2)),
    (attention_range, "query_start", numpy.array([0, 2])), (merge_states, "partial_out", bf16(2, 3, 4, 512)),
    (merge_states, "partial_lse", numpy.zeros((2, 3, 4), F32)), (build_ragged, "indices", i32(2, 3)),
    (translate_topk, "topk", i32(2, 3)), (translate_topk, "request_of_query", i32(2)),
    (translate_topk, "block_table", i32(1, 4)), (combine, "gathered", i32(1)),
    (copy_to_graph_buffers, "indices", i32(8)), (copy_to_graph_buffers, "indptr", i32(3)),
    (quantize_rows, "rows", bf16(3, 512)), (quantize_rows, "slots", i32(3)), (dequantize_rows, "slots", i32(3)),
    (gather_rows, "block_table", i32(1, 2)), (gather_rows, "first", i32(1)), (gather_rows, "count", i32(1)),
    (gather_rows, "out", bf16(1, 8, 512)), (window_of_requests, "query_start", numpy.array([0, 2])),
    (window_of_requests, "sequence_lengths", i32(1)), (window_of_positions, "positions", i32(2)),
    (window_of_positions, "request_of_query", i32(2)),
]
OPTIONAL_ARRAYS = [
    (attention, "sink", numpy.zeros(4, F32)), (attention, "lengths", i32(2)), (attention, "out", bf16(2, 4, 512)),
    (attention, "lse", numpy.zeros((2, 4), F32)), (attention, "max_logits", numpy.zeros((2, 4), F32)),
    (attention_table, "block_table", i32(1, 1)), (attention_range, "row_base", i32(1)),
    (merge_states, "sink", numpy.zeros(4, F32)), (merge_states, "out", bf16(3, 4, 512)),
    (merge_states, "lse", numpy.zeros((3, 4), F32)), (build_ragged, "lengths", i32(2)),
    (translate_topk, "valid", numpy.ones(2, bool)), (translate_topk, "lengths", i32(2)),
    (window_list, "block_table", i32(1, 4)), (window_rows, "valid", numpy.ones(2, bool)),
    (compressed_list, "block_table", i32(1, 4)), (compressed_rows, "valid", numpy.ones(2, bool)),
    (combine, "topk", i32(2, 3)), (dequantize_rows, "out", bf16(3, 512)),
]
OUTPUTS = ("out", "lse", "max_logits")  # and both arrays that copy_to_graph_buffers takes
SHOWN_AS = {"kv": "(kv|rows)", "pages": "(pages|rows_per_page)"}


def every_array(function):
    return pytest.mark.parametrize("call, argument, right", ARRAYS + OPTIONAL_ARRAYS, ids=case_id)(function)


@every_array
def test_the_right_arrays_are_right(call, argument, right):
    call(**{argument: right})
    call(**{argument: right[()]})  # another object, the same memory


@every_array
def test_what_is_no_array(call, argument, right):
    optional = (call, argument) in [case[:2] for case in OPTIONAL_ARRAYS]
    for wrong in NOT_ARRAYS if optional else [None, *NOT_ARRAYS]:
        with pytest.raises(TypeError, match=f"{SHOWN_AS.get(argument, argument)} is a .*, expected an array"):
            call(**{argument: wrong})


@every_array
def test_element_types_that_no_operator_has(call, argument, right):
    for dtype in ("float64", "float16", "uint64", "complex64", "S1", "O", ">i4", "M8[s]", "u1, u1"):
        with pytest.raises(ValueError, match=f"{SHOWN_AS.get(argument, argument)} is .*, expected f32, bf16, u8, i32"):
            call(**{argument: numpy.zeros(right.shape, dtype)})


@every_array
def test_element_types_of_other_operators(call, argument, right):
    kind = {"b": "boolean", "i": "integer", "u": "byte"}.get(right.dtype.kind, right.dtype.name)
    for other, dtype in {"boolean": bool, "float32": F32, "bfloat16": ml_dtypes.bfloat16, "integer": numpy.int64,
                         "byte": numpy.uint8}.items():
        takes_also = {"boolean": ("byte",), "float32": (), "bfloat16": ("float32",) if argument == "out" else ()}
        takes_also = takes_also | {"byte": ("bfloat16",), "integer": ()}
        if call is merge_states and argument == "partial_out":
            takes_also["bfloat16"] = ("float32",)
        if other == kind or other in takes_also[kind]:
            continue
        with pytest.raises(ValueError, match=SHOWN_AS.get(argument, argument)):
            call(**{argument: numpy.zeros(right.shape, dtype)})


@every_array
def test_other_shapes(call, argument, right):
    wrong = [right[..., None], right[None], right.reshape(-1)[:1].reshape(())]  # one dimension more, and none
    longer_is_right = argument in ("kv", "pages", "block_table", "sink")
    if len(right) > 1 and not longer_is_right and call not in (attention_ragged, copy_to_graph_buffers):
        wrong.append(numpy.concatenate([right, right])[:-1])
    for array in wrong:
        if array.ndim == right.ndim and (call, argument) in ((quantize_rows, "rows"), (dequantize_rows, "slots")):
            continue
        with pytest.raises(ValueError, match="has shape|has . dimensions|rows_per_page|expected at least"):
            call(**{argument: array})


@every_array
def test_negative_strides(call, argument, right):
    for axis in [axis for axis in range(right.ndim) if right.shape[axis] > 1]:
        with pytest.raises(ValueError, match=f"{SHOWN_AS.get(argument, argument)} has a negative stride"):
            call(**{argument: numpy.flip(right, axis)})


@every_array
def test_read_only_arrays(call, argument, right):
    constant = read_only(right.copy())
    if argument in OUTPUTS or call is copy_to_graph_buffers:
        with pytest.raises(ValueError, match=f"{argument} is read-only, but the operator writes it"):
            call(**{argument: constant})
    else:
        call(**{argument: constant})


@every_array
def test_misaligned_memory(call, argument, right):
    if right.itemsize == 1:
        return
    odd = numpy.zeros(right.nbytes + 1, numpy.uint8)[1:].view(f"V{right.itemsize}").view(right.dtype)
    with pytest.raises(ValueError, match=f"{SHOWN_AS.get(argument, argument)} is not aligned to its element size"):
        call(**{argument: odd.reshape(right.shape)})


@every_array
def test_memory_of_another_device(cuda, call, argument, right):
    with pytest.raises(ValueError, match=r"is on (cuda|hip|cpu)(:0)?, expected|cannot make an output"):
        call(**{argument: cuda.array(right)})


INTEGERS = [(attention, "splits"), (attention_paged, "rows_per_page"), (attention_range, "ring_rows"),
            (attention_range, "max_queries_per_request"), (build_ragged, "row_limit"),
            (translate_topk, "rows_per_page"), (translate_topk, "pages"), (window_rows, "query_count"),
            (window_rows, "window"), (window_rows, "rows_per_page"), (window_rows, "width"),
            (compressed_rows, "query_count"), (compressed_rows, "ratio"), (compressed_rows, "rows_per_page"),
            (compressed_rows, "width"), (combine, "query_count"), (combine, "rows_per_request"),
            (combine, "compressed_rows"), (combine, "ratio"), (combine, "window"), (gather_rows, "out_offset"),
            (reserve, "bytes")]
NUMBERS = [(attention, "scale"), (attention, "expected_overlap")]
FLAGS = [(attention, "return_lse"), (attention, "batch_invariant"), (merge_states, "return_lse"),
         (window_rows, "causal")]
NAMES = [(attention, "kernel"), (merge_states, "kernel"), (attention_paged, "encoding"), (translate_topk, "form"),
         (window_rows, "form"), (compressed_rows, "form"), (combine, "form"), (quantize_rows, "floor")]


@pytest.mark.parametrize("call, argument", INTEGERS, ids=case_id)
def test_integers(call, argument):
    for wrong in ("3", 3.0, [3], numpy.float32(3), numpy.zeros(2, int)):
        with pytest.raises(TypeError, match=f"{argument} is a .*, expected an int"):
            call(**{argument: wrong})
    for wrong in (HUGE, -HUGE):
        with pytest.raises(ValueError, match=f"{argument} is beyond the range"):
            call(**{argument: wrong})


@pytest.mark.parametrize("call, argument, value", [
    (attention, "splits", -1), (attention_paged, "rows_per_page", 0), (attention_paged, "rows_per_page", -64),
    (attention_range, "ring_rows", -1), (attention_range, "ring_rows", 2**62),
    (attention_range, "max_queries_per_request", -1), (translate_topk, "rows_per_page", 0),
    (translate_topk, "rows_per_page", -1), (window_rows, "query_count", -1), (window_rows, "query_count", 2**62),
    (window_rows, "window", -1), (window_rows, "width", -1), (compressed_rows, "query_count", -1),
    (compressed_rows, "query_count", 2**62), (compressed_rows, "ratio", 0), (compressed_rows, "ratio", -4),
    (compressed_rows, "width", -1), (combine, "query_count", -1), (combine, "query_count", 2**62),
    (combine, "rows_per_request", -1), (combine, "compressed_rows", -1), (combine, "ratio", 0),
    (combine, "window", -1), (gather_rows, "out_offset", -1), (reserve, "bytes", -1), (reserve, "bytes", 2**63 - 1),
], ids=case_id)
@pytest.mark.parametrize("form", [None, "dense", "ragged"])
def test_integers_without_meaning(call, argument, value, form):
    arguments = {argument: value}
    if form:
        if call not in (window_rows, compressed_rows, combine, translate_topk):
            return
        arguments["form"] = form
    with pytest.raises(ValueError, match=argument):
        call(**arguments)


@pytest.mark.parametrize("call, argument", NUMBERS, ids=case_id)
def test_floats(call, argument):
    for wrong in ("0.1", None, [0.1], 1j):
        with pytest.raises(TypeError, match=f"{argument} is a .*, expected a float"):
            call(**{argument: wrong})
    with pytest.raises(ValueError, match=f"{argument} is beyond the range of a float"):
        call(**{argument: 10**400})


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e300])
def test_scale_must_be_finite(scale):
    with pytest.raises(ValueError, match="scale is .*, expected a finite number"):
        attention(scale=scale)


@pytest.mark.parametrize("call, argument", FLAGS, ids=case_id)
def test_flags(call, argument):
    for wrong in (None, 1, "True", numpy.ones(1, bool)):
        with pytest.raises(TypeError, match=f"{argument} is a .*, expected a bool"):
            call(**{argument: wrong})


@pytest.mark.parametrize("call, argument", NAMES, ids=case_id)
def test_names(call, argument):
    for wrong in (None, 1, b"automatic"):
        with pytest.raises(TypeError, match=f"{argument} is a .*, expected a str"):
            call(**{argument: wrong})
    for wrong in ("", "Automatic", "automatic\0", "\ud800"):
        with pytest.raises((ValueError, TypeError), match=f"{argument} is "):
            call(**{argument: wrong})


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", f"cuda:{HUGE}", "cpu:0:0"])
def test_device_names(device):
    with pytest.raises(ValueError, match="device is '"):
        preload(device)
    with pytest.raises(TypeError, match="device is a int"):
        preload(0)


def test_streams():
    for wrong in (-1, HUGE):
        with pytest.raises(ValueError, match="stream is beyond the range"):
            build_ragged(stream=wrong)
    for wrong in ("default", 1.5, object()):
        with pytest.raises(TypeError, match="stream is a .*, expected an integer handle"):
            build_ragged(stream=wrong)

    class Stream:
        cuda_stream = "3"

    with pytest.raises(TypeError, match="stream's handle is a str"):
        build_ragged(stream=Stream())


def test_objects():
    """Arguments that are objects of this package."""
    for wrong in (None, 3, i32(2), raggedmla.DenseKv(bf16(1, 512)), (1, 2, 3)):
        for call, argument in ((window_rows, "queries"), (combine, "queries"), (copy_to_graph_buffers, "source"),
                               (quantize_rows, "cache"), (dequantize_rows, "source"), (gather_rows, "source")):
            if call is dequantize_rows and isinstance(wrong, raggedmla.DenseKv):
                continue
            with pytest.raises(TypeError, match=f"({argument}|kv) is a .*, expected"):
                call(**{argument: wrong})
    for call in (build_ragged, translate_topk, window_rows, compressed_rows, combine):
        for wrong in (3, i32(2), [i32(2), i32(2)], (i32(2),), raggedmla.DenseKv(bf16(1, 512))):
            with pytest.raises(TypeError, match="out is a .*, expected"):
                call(out=wrong)
    for call in (attention, build_ragged, translate_topk, window_rows):
        for wrong in (3, i32(100), raggedmla.Workspace):
            with pytest.raises(TypeError, match="workspace is a .*, expected Workspace or None"):
                call(workspace=wrong)
    with pytest.raises(TypeError, match="kv is a .*, expected DenseKv or PagedKv"):
        raggedmla.Segment(None, raggedmla.DenseRows(i32(2, 3)))
    with pytest.raises(TypeError, match="rows is a .*, expected RaggedRows, DenseRows or RangeRows"):
        raggedmla.Segment(raggedmla.DenseKv(bf16(8, 512)), None)


def test_segments():
    segment = raggedmla.Segment(raggedmla.DenseKv(bf16(8, 512)), raggedmla.DenseRows(i32(2, 3)))
    for wrong in (None, 3, segment.kv):
        with pytest.raises(TypeError, match="segments is a .*, expected Segment or a sequence"):
            attention(segments=wrong)
    for wrong in ([None], [segment, 3], (segment.kv, segment.rows), [[segment.kv, segment.rows]], "abc",
                  [(segment.kv, segment.rows, None)]):
        with pytest.raises(TypeError, match="a segment is a .*, expected Segment or a pair"):
            attention(segments=wrong)
    for wrong in ([], [segment] * 5):
        with pytest.raises(ValueError, match="segments has . entries, expected 1 to 4"):
            attention(segments=wrong)
    for wrong in (3, (1,), [i32(2), i32(2)], (i32(2), i32(2), i32(2))):
        with pytest.raises(TypeError, match="inverse_rope is a .*, expected None or a pair"):
            attention(inverse_rope=wrong)
    with pytest.raises(TypeError, match=r"inverse_rope\[0\] is a NoneType"):
        attention(inverse_rope=(None, i32(2)))


def test_names_that_do_not_exist():
    with pytest.raises(TypeError, match="colour"):
        attention(colour=1)
    with pytest.raises(TypeError, match="attention"):
        raggedmla.attention()


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_read_only_ranges():
    with pytest.raises(ValueError, match=r"out\[1\] is read-only"):
        window_rows(out=(i32(2), read_only(i32(2))))


@pytest.mark.parametrize("member", ["indices", "indptr", "lengths"])
def test_read_only_lists(member):
    arrays = {"indices": i32(2 * 128), "indptr": i32(3), "lengths": i32(2)}
    read_only(arrays[member])
    for call in (build_ragged, translate_topk, window_rows, combine):
        with pytest.raises(ValueError, match=f"out.{member} is read-only"):
            call(out=raggedmla.RaggedRows(**arrays))
    if member == "indptr":
        return
    dense = {"indices": i32(2, 128), "lengths": i32(2)}
    read_only(dense[member])
    for call in (translate_topk, window_rows, compressed_rows):
        with pytest.raises(ValueError, match=f"out.{member} is read-only"):
            call(out=raggedmla.DenseRows(**dense))


def test_read_only_pages():
    with pytest.raises(ValueError, match="cache.pages is read-only"):
        quantize_rows(cache=raggedmla.PagedKv(read_only(numpy.zeros((2, 64, 584), numpy.uint8))))


def test_strides_between_elements():
    structures = numpy.zeros(6, "i4, i2")["f0"]
    with pytest.raises(ValueError, match="lengths has strides between elements"):
        build_ragged(indices=i32(6, 3), lengths=structures)


def test_outputs_too_large_to_be_made():
    endless = numpy.broadcast_to(numpy.zeros((), numpy.int32), (2**30, 2**30))  # 2^60 entries in four bytes
    for call, argument in ((build_ragged, "indices"), (translate_topk, "topk")):
        with pytest.raises((ValueError, MemoryError)):
            call(**{argument: endless})
    for call in (window_rows, compressed_rows):
        for form in ("dense", "ragged"):
            with pytest.raises(ValueError, match="out.indices is too large to be made"):
                call(query_count=2**40, width=2**40, form=form)


def test_rows_that_are_strided_apart():
    wide = bf16(2, 4, 1024)
    with pytest.raises(ValueError, match="q has stride 2 in its last dimension, expected 1"):
        attention(q=wide[:, :, ::2])
    with pytest.raises(ValueError, match="rows has stride 2 in its last dimension, expected 1"):
        attention(kv=bf16(8, 1024)[:, ::2])
    with pytest.raises(ValueError, match="out has stride 2 in its last dimension, expected 1"):
        attention(out=wide[:, :, ::2])


@pytest.mark.parametrize("call, changes", [
    (attention, {"q": bf16(0, 4, 512), "indices": i32(0, 3)}), (attention, {"q": bf16(2, 0, 512)}),
    (attention, {"indices": i32(2, 0)}), (attention, {"kv": bf16(0, 512)}),
    (attention_paged, {"pages": numpy.zeros((0, 64, 584), numpy.uint8)}), (attention_ragged, {"indices": i32(0)}),
    (merge_states, {"partial_out": bf16(0, 3, 4, 512), "partial_lse": numpy.zeros((0, 3, 4), numpy.float32)}),
    (build_ragged, {"indices": i32(0, 3), "lengths": i32(0)}), (build_ragged, {"indices": i32(2, 0)}),
    (translate_topk, {"block_table": i32(0, 0)}), (translate_topk, {"topk": i32(2, 0)}),
    (window_rows, {"queries": requests((0,), ()), "query_count": 0}),
    (quantize_rows, {"rows": bf16(0, 512), "slots": i32(0)}), (dequantize_rows, {"slots": i32(0)}),
    (gather_rows, {"block_table": i32(1, 0)}),
], ids=case_id)
def test_nothing_to_do_is_right(call, changes):
    call(**changes)


# ---- PyTorch's special tensors ---------------------------------------------------------------------------------------


def test_tensors_without_plain_memory(torch_framework):
    torch, device = torch_framework.torch, torch_framework.device
    lengths = torch.zeros(2, dtype=torch.int32, device=device)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), torch.device(device):
        fake = torch.zeros(2, 3, dtype=torch.int32)
    for wrong in (torch.zeros(2, 3, dtype=torch.int32, device="meta"), fake,
                  torch.zeros(2, 3, dtype=torch.int32, device=device).to_sparse(),
                  torch.zeros(2, 3, dtype=torch.complex64, device=device).conj(),
                  torch.zeros(2, 3, dtype=torch.complex64, device=device).conj().imag,
                  torch.quantize_per_tensor(torch.zeros(2, 3), 1.0, 0, torch.qint32)):
        with pytest.raises((ValueError, TypeError), match="indices"):
            raggedmla.build_ragged(wrong, lengths)


def test_tensors_of_wrong_shapes_and_types(torch_framework):
    torch, device = torch_framework.torch, torch_framework.device

    def i32(*shape):
        return torch.zeros(shape, dtype=torch.int32, device=device)

    for wrong, message in ((i32(), "indices has shape"), (i32(6), "indices has shape"), (i32(2, 3, 1), "indices has "),
                           (i32(2, 3).long().unsqueeze(0).expand(2, 2, 3), "indices has shape"),
                           (i32(2, 3).double(), "indices is float64"), (i32(2, 3).half(), "indices is float16"),
                           (i32(2, 3).to(torch.float8_e4m3fn), "indices is u8"), (i32(2, 3).bool(), "indices is bool")):
        with pytest.raises(ValueError, match=message):
            raggedmla.build_ragged(wrong, i32(2))
    with pytest.raises(ValueError, match="lengths is float64"):
        raggedmla.build_ragged(i32(2, 3), i32(2).double())
    one = i32(1).expand(6)
    with pytest.raises(ValueError, match="out.indices is an output with stride 0"):
        raggedmla.build_ragged(i32(2, 3), out=raggedmla.RaggedRows(one, i32(3)))


def test_wrong_tensors_of_the_operators(torch_framework):
    torch, device = torch_framework.torch, torch_framework.device
    import raggedmla.torch as operators

    q = torch.zeros(2, 4, 512, dtype=torch.bfloat16, device=device)
    kv, indices = q[0, :, :], torch.zeros(2, 3, dtype=torch.int32, device=device)
    operators.attention(q, kv, indices)
    for changes, message in (({"q": q[0]}, "q has shape"), ({"q": q.float()}, "q is f32"),
                             ({"main_kv": kv[:, :500]}, "kv.* has shape"), ({"main_kv": kv.float()}, "kv|pages|rows"),
                             ({"main_indices": indices[:1]}, "indices has shape"),
                             ({"main_indptr": indices[0]}, "indices has shape"),
                             ({"extra_kv": kv}, "indices is a NoneType"), ({"sink": q[0, 0, :3].float()}, "sink has "),
                             ({"scale": float("nan")}, "scale is nan"),
                             ({"inverse_rope_cos_sin": q.float()}, "inverse_rope.1. is a NoneType")):
        with pytest.raises((ValueError, TypeError), match=message):
            operators.attention(**({"q": q, "main_kv": kv, "main_indices": indices} | changes))
