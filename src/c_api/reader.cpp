#include "c_api/reader.hpp"

#include <algorithm>

namespace raggedmla::c_api {
namespace {

/// No structure of this ABI is near this size: a larger one was never initialised.
constexpr std::size_t implausible_size = 4096;

template <class Enum>
constexpr bool same(std::int32_t c_value, Enum value) {
  return c_value == static_cast<std::int32_t>(value);
}
static_assert(same(RAGGEDMLA_F32, DataType::f32) && same(RAGGEDMLA_BF16, DataType::bf16) &&
              same(RAGGEDMLA_U8, DataType::u8) && same(RAGGEDMLA_I32, DataType::i32) &&
              same(RAGGEDMLA_I64, DataType::i64) && same(RAGGEDMLA_BOOLEAN, DataType::boolean));
static_assert(same(RAGGEDMLA_CPU, DeviceType::cpu) && same(RAGGEDMLA_CUDA, DeviceType::cuda) &&
              same(RAGGEDMLA_HIP, DeviceType::hip));
static_assert(same(RAGGEDMLA_FP8_OCP, Fp8Encoding::ocp) && same(RAGGEDMLA_FP8_FNUZ, Fp8Encoding::fnuz));
static_assert(same(RAGGEDMLA_SCALE_FLOOR_AMAX, ScaleFloor::amax) &&
              same(RAGGEDMLA_SCALE_FLOOR_QUOTIENT, ScaleFloor::quotient));
static_assert(same(RAGGEDMLA_EPILOGUE_NONE, Epilogue::Kind::none) &&
              same(RAGGEDMLA_EPILOGUE_INVERSE_ROPE, Epilogue::Kind::inverse_rope));
static_assert(same(RAGGEDMLA_KERNEL_AUTOMATIC, Schedule::Kernel::automatic) &&
              same(RAGGEDMLA_KERNEL_REFERENCE, Schedule::Kernel::reference) &&
              same(RAGGEDMLA_KERNEL_CPU, Schedule::Kernel::cpu) &&
              same(RAGGEDMLA_KERNEL_PORTABLE, Schedule::Kernel::portable) &&
              same(RAGGEDMLA_KERNEL_SM90, Schedule::Kernel::sm90));
static_assert(TensorView::max_rank == RAGGEDMLA_MAX_RANK);

}  // namespace

std::size_t Reader::plausible_size(const char* argument, const void* given, std::size_t first,
                                   std::size_t known) const {
  if (given == nullptr) fail(argument, "is NULL");
  std::size_t size;
  std::memcpy(&size, given, sizeof size);
  if (size < first || size > implausible_size) {
    fail(argument, "has struct_size " + std::to_string(size) + ", expected " + std::to_string(known));
  }
  return size;
}

void Reader::require_zero_tail(const char* argument, const void* given, std::size_t known, std::size_t size) const {
  const auto* bytes = static_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(known, size), bytes + size, [](unsigned char byte) { return byte != 0; })) {
    fail(argument, "has struct_size " + std::to_string(size) + " and uses fields that this library (" +
                       std::to_string(known) + " bytes) does not know");
  }
}

TensorView Reader::tensor(const char* argument, const raggedmla_tensor* given) const {
  const raggedmla_tensor c = structure(argument, given);
  if (c.rank < 0 || c.rank > TensorView::max_rank) {
    fail(argument, "has rank " + std::to_string(c.rank) + ", expected 0 to 4");
  }
  TensorView view;
  view.data = c.data;
  view.dtype = enumerator(argument, c.dtype, DataType::boolean);
  view.device = device(argument, c.device_type, c.device_index);
  view.rank = c.rank;
  std::copy_n(c.shape, c.rank, view.shape.begin());
  std::copy_n(c.stride, c.rank, view.stride.begin());
  return view;
}

OptionalTensor Reader::optional(const char* argument, const raggedmla_tensor* given) const {
  if (given == nullptr) return std::nullopt;
  return tensor(argument, given);
}

Device Reader::device(const char* argument, raggedmla_device_type type, std::int32_t index) const {
  return {enumerator(argument, type, DeviceType::hip), index};
}

Workspace Reader::workspace(const raggedmla_workspace* given) const {
  if (given == nullptr) return {};
  const raggedmla_workspace c = structure("workspace", given);
  return {c.data, c.bytes, device("workspace.device_type", c.device_type, c.device_index)};
}

KvSource Reader::kv(const char* argument, const raggedmla_kv* given) const {
  const raggedmla_kv c = structure(argument, given);
  if (c.kind == RAGGEDMLA_KV_DENSE) return DenseKv{tensor(argument, c.rows)};
  if (c.kind != RAGGEDMLA_KV_PAGED) fail(argument, "has kind " + std::to_string(c.kind) + ", expected 0 or 1");
  return PagedKv{tensor(argument, c.rows), c.rows_per_page, enumerator(argument, c.encoding, Fp8Encoding::fnuz)};
}

PagedKv Reader::paged(const char* argument, const raggedmla_kv* given) const {
  const KvSource source = kv(argument, given);
  if (const PagedKv* pages = std::get_if<PagedKv>(&source)) return *pages;
  fail(argument, "is dense, expected pages");
}

RowSelection Reader::rows(const char* argument, const raggedmla_rows* given) const {
  const raggedmla_rows c = structure(argument, given);
  switch (c.kind) {
    case RAGGEDMLA_LIST_RAGGED: return RaggedRows{tensor("rows.indices", c.indices), tensor("rows.indptr", c.indptr)};
    case RAGGEDMLA_LIST_DENSE: return DenseRows{tensor("rows.indices", c.indices), optional("rows.lengths", c.lengths)};
    case RAGGEDMLA_LIST_RANGE:
      return RangeRows{tensor("rows.first", c.first),
                       tensor("rows.count", c.count),
                       tensor("rows.query_start", c.query_start),
                       optional("rows.block_table", c.block_table),
                       optional("rows.row_base", c.row_base),
                       c.ring_rows,
                       c.max_queries_per_request};
    default: fail(argument, "has kind " + std::to_string(c.kind) + ", expected 0 to 2");
  }
}

QueryLayout Reader::queries(const raggedmla_query_layout* given) const {
  const raggedmla_query_layout c = structure("queries", given);
  switch (c.kind) {
    case RAGGEDMLA_QUERIES_BY_REQUEST:
      return RequestQueries{tensor("queries.query_start", c.query_start),
                            tensor("queries.sequence_lengths", c.sequence_lengths)};
    case RAGGEDMLA_QUERIES_BY_POSITION:
      return PositionedQueries{tensor("queries.positions", c.positions),
                               tensor("queries.request_of_query", c.request_of_query)};
    default: fail("queries", "has kind " + std::to_string(c.kind) + ", expected 0 or 1");
  }
}

Epilogue Reader::epilogue(const raggedmla_epilogue* given) const {
  if (given == nullptr) return {};
  const raggedmla_epilogue c = structure("epilogue", given);
  Epilogue epilogue;
  epilogue.kind = enumerator("epilogue.kind", c.kind, Epilogue::Kind::inverse_rope);
  if (epilogue.kind == Epilogue::Kind::none) return epilogue;
  epilogue.cos_sin = tensor("epilogue.cos_sin", c.cos_sin);
  epilogue.positions = tensor("epilogue.positions", c.positions);
  return epilogue;
}

Schedule Reader::schedule(const raggedmla_schedule* given) const {
  if (given == nullptr) return {};
  const raggedmla_schedule c = structure("schedule", given);
  return {kernel(c.kernel), c.splits, c.batch_invariant != 0, c.expected_overlap};
}

Schedule::Kernel Reader::kernel(raggedmla_kernel value) const {
  return enumerator("kernel", value, Schedule::Kernel::sm90);
}

}  // namespace raggedmla::c_api
