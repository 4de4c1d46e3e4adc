#include <array>
#include <string>

#include "objects.hpp"
#include "scratch.hpp"

namespace raggedmla::python {

namespace {

constexpr std::size_t max_segments = 4;

/// The `segments` argument: one Segment, or a sequence of segments and pairs.
class Segments {
 public:
  explicit Segments(nb::handle object) {
    if (nb::isinstance<PySegment>(object)) {
      add(object);
      return;
    }
    const nb::object items = nb::steal(PySequence_Fast(object.ptr(), ""));
    if (!items.is_valid()) {
      PyErr_Clear();
      refuse_type("segments", object, "Segment or a sequence of segments and pairs (kv, rows)");
    }
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
    if (count > static_cast<Py_ssize_t>(max_segments)) {
      throw nb::value_error(("segments has " + std::to_string(count) + " entries, expected 1 to 4").c_str());
    }
    for (Py_ssize_t i = 0; i < count; ++i) add(PySequence_Fast_GET_ITEM(items.ptr(), i));
  }
  std::span<const Segment> view() const { return {views_.data(), count_}; }

 private:
  void add(nb::handle item) {
    if (const PySegment * segment; nb::try_cast(item, segment) && segment != nullptr) {
      owners_[count_] = nb::borrow(item);
      views_[count_++] = segment->view;
      return;
    }
    nb::tuple pair;
    if (!nb::try_cast(item, pair) || pair.size() != 2) refuse_type("a segment", item, "Segment or a pair (kv, rows)");
    owners_[count_] = pair;
    views_[count_++] = {kv_source(pair[0]), row_selection(pair[1])};
  }
  std::array<Segment, max_segments> views_;
  std::array<nb::object, max_segments> owners_;  // another thread may empty the caller's list during the call
  std::size_t count_ = 0;
};

/// `inverse_rope`: None, or a pair (cos_sin, positions).
struct InverseRope {
  std::optional<Array> cos_sin, positions;

  explicit InverseRope(nb::handle object) {
    if (object.is_none()) return;
    nb::tuple pair;
    if (!nb::try_cast(object, pair) || pair.size() != 2) {
      refuse_type("inverse_rope", object, "None or a pair (cos_sin, positions)");
    }
    cos_sin = import_array(pair[0], "inverse_rope[0]");
    positions = import_array(pair[1], "inverse_rope[1]");
  }
  Epilogue epilogue() const {
    if (!cos_sin) return {};
    return {Epilogue::Kind::inverse_rope, cos_sin->view, positions->view};
  }
};

/// The caller's array, or a new one beside `like`; rank and sizes of `like` are checked by the operator, so sizes that
/// `like` does not have count as 0 here.
Array given_or_new(nb::handle given, const char* name, const Array& like, std::initializer_list<std::int64_t> shape,
                   DataType dtype) {
  return given.is_none() ? empty_like(like, shape, dtype) : import_output(given, name);
}

Schedule schedule(nb::handle kernel, nb::handle splits, nb::handle batch_invariant) {
  Schedule result;
  result.kernel = kernel_named(kernel);
  result.splits = integer<int>(splits, "splits");
  result.batch_invariant = flag(batch_invariant, "batch_invariant");
  return result;
}

nb::object attention(nb::handle q_object, nb::handle segments_object, nb::handle sink_object, nb::handle scale,
                     nb::handle out_object, nb::handle lse_object, nb::handle max_logits_object,
                     nb::handle return_lse_object, nb::handle inverse_rope_object, nb::handle kernel, nb::handle splits,
                     nb::handle batch_invariant, nb::handle expected_overlap, nb::handle workspace,
                     nb::handle stream_object) {
  const Array q = import_array(q_object, "q");
  const std::optional<Array> sink = import_optional(sink_object, "sink");
  const InverseRope inverse_rope(inverse_rope_object);

  const Segments segments(segments_object);
  const TensorView& view = q.view;
  const bool return_lse = flag(return_lse_object, "return_lse");
  const Array out = given_or_new(out_object, "out", q, {view.shape[0], view.shape[1], view.shape[2]}, view.dtype);
  std::optional<Array> lse;
  if (return_lse || !lse_object.is_none()) {
    lse = given_or_new(lse_object, "lse", q, {view.shape[0], view.shape[1]}, DataType::f32);
  }
  std::optional<Array> max_logits;
  if (!max_logits_object.is_none()) max_logits = import_output(max_logits_object, "max_logits");

  Attention arguments;
  arguments.q = q.view;
  arguments.segments = segments.view();
  arguments.sink = python::view(sink);
  arguments.scale = number(scale, "scale");
  arguments.out = out.view;
  arguments.lse = python::view(lse);
  arguments.max_logits = python::view(max_logits);
  arguments.epilogue = inverse_rope.epilogue();
  arguments.schedule = schedule(kernel, splits, batch_invariant);
  arguments.schedule.expected_overlap = number(expected_overlap, "expected_overlap");

  const Stream stream = stream_for(q, stream_object);
  run(
      "attention", workspace, q, stream, [&] { return attention_workspace_bytes(arguments); },
      [&](Workspace scratch) { raggedmla::attention(arguments, scratch, stream); });
  if (return_lse) return nb::make_tuple(out.owner, lse->owner);
  return out.owner;
}

std::size_t workspace_bytes(nb::handle q_object, nb::handle segments_object, nb::handle out_object, nb::handle kernel,
                            nb::handle splits, nb::handle batch_invariant, nb::handle expected_overlap) {
  const Array q = import_array(q_object, "q");
  const Array out = import_array(out_object, "out");
  const Segments segments(segments_object);
  Attention arguments;
  arguments.q = q.view;
  arguments.segments = segments.view();
  arguments.out = out.view;
  arguments.schedule = schedule(kernel, splits, batch_invariant);
  arguments.schedule.expected_overlap = number(expected_overlap, "expected_overlap");
  return attention_workspace_bytes(arguments);
}

nb::object merge_states(nb::handle partial_out_object, nb::handle partial_lse_object, nb::handle sink_object,
                        nb::handle out_object, nb::handle lse_object, nb::handle return_lse_object, nb::handle kernel,
                        nb::handle stream_object) {
  const Array partial_out = import_array(partial_out_object, "partial_out");
  const Array partial_lse = import_array(partial_lse_object, "partial_lse");
  const std::optional<Array> sink = import_optional(sink_object, "sink");
  const bool return_lse = flag(return_lse_object, "return_lse");
  const TensorView& view = partial_out.view;
  const Array out =
      given_or_new(out_object, "out", partial_out, {view.shape[1], view.shape[2], view.shape[3]}, view.dtype);
  std::optional<Array> lse;
  if (return_lse || !lse_object.is_none()) {
    lse = given_or_new(lse_object, "lse", partial_out, {view.shape[1], view.shape[2]}, DataType::f32);
  }
  const MergeStates arguments{partial_out.view, partial_lse.view,  python::view(sink),
                              out.view,         python::view(lse), kernel_named(kernel)};
  const Stream stream = stream_for(partial_out, stream_object);
  run([&] { raggedmla::merge_states(arguments, stream); });
  if (return_lse) return nb::make_tuple(out.owner, lse->owner);
  return out.owner;
}

}  // namespace

void bind_attention(nb::module_& module) {
  module.def("attention", &attention, named("q"), named("segments"), named("sink") = nb::none(),
             named("scale") = Attention{}.scale, nb::kw_only(), named("out") = nb::none(), named("lse") = nb::none(),
             named("max_logits") = nb::none(), named("return_lse") = false, named("inverse_rope") = nb::none(),
             named("kernel") = "automatic", named("splits") = 0, named("batch_invariant") = false,
             named("expected_overlap") = -1.0f, named("workspace") = nb::none(), named("stream") = nb::none(),
             nb::sig("def attention(q: Array, segments: Segment | "
                     "collections.abc.Sequence[Segment | tuple], sink: Array | None = None, "
                     "scale: float = 0.04419417382415922, *, out: Array | None = None, "
                     "lse: Array | None = None, max_logits: Array | None = None, "
                     "return_lse: bool = False, inverse_rope: tuple | None = None, kernel: str = 'automatic', "
                     "splits: int = 0, batch_invariant: bool = False, expected_overlap: float = -1.0, "
                     "workspace: Workspace | None = None, stream: int | object | None = None) -> "
                     "typing.Any"),
             R"(Sparse multi-query attention over selected cache rows; prefill and decode are the same call.

For query t and head h, over all valid rows i of all segments (K_i is the row, and the value too):

    z_i = scale * (q[t, h] . K_i)
    out = sum_i exp(z_i) K_i / (sum_i exp(z_i) + exp(sink[h]))
    lse = log(sum_i exp(z_i))        natural logarithm, without the sink

q            bf16 [T, H, 512], any H
segments     one to four Segment (or pairs of a KV source and a row selection), softmax over their union
sink         f32 [H] or longer: one logit per head that joins the denominator, not scaled
scale        softmax scale; the default is 512 ** -0.5
out          bf16 or f32 [T, H, 512]; made like q if None
lse          f32 [T, H], optional output; made if None and return_lse
max_logits   f32 [T, H], optional output: the largest z
return_lse   return (out, lse) instead of out
inverse_rope (cos_sin, positions): rotate the last 64 channels of the output back. cos_sin f32 [P, 64] holds 32 cosines,
             then 32 sines; positions i32 or i64 [T]
kernel, splits, batch_invariant, expected_overlap
             how the call is carried out (see docs/python.md); the defaults are right
workspace    a Workspace; None uses scratch that belongs to the device and stream
stream       a stream handle (int) or object; None is the current stream of the framework that q comes from

A query without a valid row gives out = 0 and lse = -inf, whatever the sink. Indices outside the source are skipped.
Returns when the work is enqueued (on a CPU: done). Raises ValueError, with the library's message, for wrong arguments
and RuntimeError where the device refuses; nothing has been written then.)");

  module.def("attention_workspace_bytes", &workspace_bytes, named("q"), named("segments"), named("out"), nb::kw_only(),
             named("kernel") = "automatic", named("splits") = 0, named("batch_invariant") = false,
             named("expected_overlap") = -1.0f,
             nb::sig("def attention_workspace_bytes(q: Array, segments: Segment | "
                     "collections.abc.Sequence[Segment | tuple], out: Array, *, "
                     "kernel: str = 'automatic', splits: int = 0, batch_invariant: bool = False, "
                     "expected_overlap: float = -1.0) -> int"),
             "Bytes of scratch that `attention` needs for these shapes and this schedule: what to pass to "
             "Workspace.reserve.");

  module.def("merge_states", &merge_states, named("partial_out"), named("partial_lse"), named("sink") = nb::none(),
             nb::kw_only(), named("out") = nb::none(), named("lse") = nb::none(), named("return_lse") = false,
             named("kernel") = "automatic", named("stream") = nb::none(),
             nb::sig("def merge_states(partial_out: Array, partial_lse: Array, "
                     "sink: Array | None = None, *, out: Array | None = None, "
                     "lse: Array | None = None, return_lse: bool = False, kernel: str = 'automatic', "
                     "stream: int | object | None = None) -> "
                     "typing.Any"),
             R"(Joins S partial results over disjoint rows, and once the sink (context parallelism).

partial_out  bf16 or f32 [S, T, H, 512], computed without the sink
partial_lse  f32 [S, T, H], natural logarithm; -inf marks an empty part, whose out is not read as a number
sink         f32 [H] or None
out          bf16 or f32 [T, H, 512]; lse f32 [T, H]

Returns out, or (out, lse) with return_lse.)");
}

}  // namespace raggedmla::python
