#include "objects.hpp"
#include "scratch.hpp"

namespace raggedmla::python {

namespace {

void quantize_rows(nb::handle rows_object, nb::handle slots_object, nb::handle cache_object, nb::handle floor,
                   nb::handle stream_object) {
  const Array rows = import_array(rows_object, "rows");
  const Array slots = import_array(slots_object, "slots");
  const auto& cache = argument<const PyPagedKv>(cache_object, "cache", "PagedKv");
  require_writable(cache.pages, "cache.pages");
  const QuantizeRows arguments{
      rows.view, slots.view, cache.view(),
      choice<ScaleFloor>(floor, "floor", {{"amax", ScaleFloor::amax}, {"quotient", ScaleFloor::quotient}})};
  const Stream stream = stream_for(rows, stream_object);
  run([&] { raggedmla::quantize_rows(arguments, stream); });
}

nb::object dequantize_rows(nb::handle source, nb::handle slots_object, nb::handle out_object,
                           nb::handle stream_object) {
  const Array slots = import_array(slots_object, "slots");
  const Array out = out_object.is_none() ? empty_like(slots, {slots.view.shape[0], v4_row.query_width}, DataType::bf16)
                                         : import_output(out_object, "out");
  const DequantizeRows arguments{kv_source(source), slots.view, out.view};
  const Stream stream = stream_for(slots, stream_object);
  run([&] { raggedmla::dequantize_rows(arguments, stream); });
  return out.owner;
}

nb::object gather_rows(nb::handle source_object, nb::handle table_object, nb::handle first_object,
                       nb::handle count_object, nb::handle out_object, nb::handle out_offset,
                       nb::handle stream_object) {
  const auto& source = argument<const PyPagedKv>(source_object, "source", "PagedKv");
  const Array block_table = import_array(table_object, "block_table");
  const Array first = import_array(first_object, "first");
  const Array count = import_array(count_object, "count");
  const Array out = import_output(out_object, "out");
  const GatherRows arguments{source.view(), block_table.view, first.view,
                             count.view,    out.view,         integer<std::int64_t>(out_offset, "out_offset")};
  const Stream stream = stream_for(out, stream_object);
  run([&] { raggedmla::gather_rows(arguments, stream); });
  return out.owner;
}

}  // namespace

void bind_kv_cache(nb::module_& module) {
  module.def("quantize_rows", &quantize_rows, named("rows"), named("slots"), named("cache"), nb::kw_only(),
             named("floor") = "amax", named("stream") = nb::none(),
             nb::sig("def quantize_rows(rows: Array, slots: Array"
                     ", cache: PagedKv, *, floor: str = 'amax', stream: int | object | None = None) -> None"),
             R"(Writes bf16 rows into a paged cache at given slots, quantised where its pages are fp8.

rows   bf16 [M, 512]
slots  i32 or i64 [M]; a slot outside the cache writes nothing
cache  PagedKv, written in place
floor  'amax' (DeepSeek's reference) or 'quotient' (FlashMLA's tests): how small a group's scale may become)");

  module.def("dequantize_rows", &dequantize_rows, named("source"), named("slots"), nb::kw_only(),
             named("out") = nb::none(), named("stream") = nb::none(),
             nb::sig("def dequantize_rows(source: DenseKv | PagedKv, slots: Array, *, out: Array"
                     " | None = None, stream: int | object | None = None) -> typing.Any"),
             R"(Reads rows at slots as bf16: out[m] = row slots[m]; a slot outside the source gives a zero row.

slots  i32 or i64 [M]
out    bf16 [M, 512]; made beside `slots` if None)");

  module.def("gather_rows", &gather_rows, named("source"), named("block_table"), named("first"), named("count"),
             named("out"), nb::kw_only(), named("out_offset") = 0, named("stream") = nb::none(),
             nb::sig("def gather_rows(source: PagedKv, block_table: Array, first: Array, count: Array"
                     ", out: Array, *, out_offset: int = 0, stream: int | object | None = None) -> typing.Any"),
             R"(Gathers a range of logical rows per request into a bf16 workspace for prefill:
out[b, out_offset + i] = row first[b] + i of request b, 0 <= i < count[b].

block_table   i32 or i64 [B, P]
first, count  i32 or i64 [B]
out           bf16 [B, M, 512]; rows beyond M are dropped)");
}

}  // namespace raggedmla::python
