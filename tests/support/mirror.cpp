#include "support/mirror.hpp"

#include <string_view>
#include <type_traits>

namespace raggedmla::test {

namespace {

Device gpu_device() {
  const DeviceType type = host::gpu_type();
  return {type == DeviceType::cpu ? DeviceType::cuda : type, 0};
}

std::size_t extent_bytes(const TensorView& view) {
  std::int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] == 0) return 0;
    last += (view.shape[i] - 1) * view.stride[i];
  }
  return static_cast<std::size_t>(last + 1) * element_bytes(view.dtype);
}

/// Calls visit(byte offset, bytes) for what a copy must move: all at once, or, where gigabytes lie between the
/// outermost elements, each of these.
template <class Visit>
void for_each_piece(const TensorView& view, Visit&& visit) {
  TensorView element = view;
  element.shape[0] = 1;
  const std::size_t whole = extent_bytes(view), piece = extent_bytes(element);
  const std::size_t stride = view.rank > 0 ? static_cast<std::size_t>(view.stride[0]) * element_bytes(view.dtype) : 0;
  if (whole <= Tensor::poisoned_bytes || 2 * piece > stride) return visit(0, whole);
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.shape[0]); ++i) visit(i * stride, piece);
}

}  // namespace

std::vector<Backend> list_backends() {
  const Device gpu = gpu_device();
  return {{"cpu", {}}, {gpu.type == DeviceType::hip ? "hip" : "cuda", gpu}};
}

std::vector<Backend> attention_backends() {
  const Device gpu = gpu_device();
  std::vector<Backend> backends{{"cpu", {}, Schedule::Kernel::cpu},
                                {"gpu_automatic", gpu, Schedule::Kernel::automatic},
                                {"gpu_portable", gpu, Schedule::Kernel::portable}};
  if (gpu.type == DeviceType::cuda) {
    backends.push_back({"gpu_sm90", gpu, Schedule::Kernel::sm90});
    backends.push_back({"gpu_sm90_disjoint", gpu, Schedule::Kernel::sm90, 0.0f});
    backends.push_back({"gpu_sm90_shared", gpu, Schedule::Kernel::sm90, 1.0f});
  }
  return backends;
}

bool present(const Backend& backend) {
  return backend.device.type == DeviceType::cpu || backend.device.index < host::gpu_count();
}

std::string backend_name(const Backend& backend) { return backend.name; }

TensorView Mirror::copy(const TensorView& view, bool output) {
  if (device_.type == DeviceType::cpu) return view;
  const std::size_t bytes = extent_bytes(view);
  TensorView result = view;
  result.device = device_;
  host::Memory memory(device_, bytes > 0 ? bytes : 256);
  if (bytes > Tensor::poisoned_bytes) memory.fill(0xFF);  // NaN between the pieces
  result.data = memory.data();
  copies_.push_back({view, std::move(memory), output});
  upload(copies_.back());
  return result;
}

void Mirror::upload(Copy& copy) {
  for_each_piece(copy.host, [&](std::size_t offset, std::size_t bytes) {
    copy.memory.upload(static_cast<const char*>(copy.host.data) + offset, bytes, offset);
  });
}

TensorView Mirror::in(const TensorView& view) { return copy(view, false); }
TensorView Mirror::out(const TensorView& view) { return copy(view, true); }
OptionalTensor Mirror::in(const OptionalTensor& view) { return view ? OptionalTensor(in(*view)) : std::nullopt; }
OptionalTensor Mirror::out(const OptionalTensor& view) { return view ? OptionalTensor(out(*view)) : std::nullopt; }

Workspace Mirror::workspace(std::size_t bytes) {
  scratch_.emplace_back(device_, bytes > 0 ? bytes : 256);
  poison_workspaces();
  return {scratch_.back().data(), scratch_.back().bytes(), device_};
}

void Mirror::poison_workspaces() {
  host::synchronize(device_);
  for (host::Memory& memory : scratch_) {
    memory.fill(0xFF);
    initialize_workspace({memory.data(), memory.bytes(), device_}, stream());
  }
}

PagedKv Mirror::in(const PagedKv& source) { return {in(source.pages), source.rows_per_page, source.encoding}; }

KvSource Mirror::in(const KvSource& source) {
  if (const auto* paged = std::get_if<PagedKv>(&source)) return in(*paged);
  return DenseKv{in(std::get<DenseKv>(source).rows)};
}

RowSelection Mirror::in(const RowSelection& rows) {
  if (const auto* ragged = std::get_if<RaggedRows>(&rows)) return RaggedRows{in(ragged->indices), in(ragged->indptr)};
  if (const auto* dense = std::get_if<DenseRows>(&rows)) return DenseRows{in(dense->indices), in(dense->lengths)};
  RangeRows range = std::get<RangeRows>(rows);
  range.first = in(range.first);
  range.count = in(range.count);
  range.query_start = in(range.query_start);
  range.block_table = in(range.block_table);
  range.row_base = in(range.row_base);
  return range;
}

QueryLayout Mirror::in(const QueryLayout& queries) {
  if (const auto* requests = std::get_if<RequestQueries>(&queries)) {
    return RequestQueries{in(requests->query_start), in(requests->sequence_lengths)};
  }
  const auto& positioned = std::get<PositionedQueries>(queries);
  return PositionedQueries{in(positioned.positions), in(positioned.request_of_query)};
}

ListOutput Mirror::out(const ListOutput& output) {
  if (const auto* dense = std::get_if<DenseOutput>(&output))
    return DenseOutput{out(dense->indices), out(dense->lengths)};
  const auto& ragged = std::get<RaggedOutput>(output);
  return RaggedOutput{out(ragged.indices), out(ragged.indptr), out(ragged.lengths)};
}

RangeOrListOutput Mirror::out(const RangeOrListOutput& output) {
  if (const auto* range = std::get_if<RangeOutput>(&output)) return RangeOutput{out(range->first), out(range->count)};
  const ListOutput list = std::holds_alternative<DenseOutput>(output) ? ListOutput(std::get<DenseOutput>(output))
                                                                      : ListOutput(std::get<RaggedOutput>(output));
  return std::visit([](const auto& value) { return RangeOrListOutput(value); }, out(list));
}

Attention Mirror::attention(const Attention& arguments) {
  Attention result = arguments;
  result.q = in(arguments.q);
  std::vector<Segment> segments;
  for (const Segment& segment : arguments.segments) segments.push_back({in(segment.kv), in(segment.rows)});
  segments_.push_back(std::move(segments));
  result.segments = segments_.back();
  result.sink = in(arguments.sink);
  result.out = out(arguments.out);
  result.lse = out(arguments.lse);
  result.max_logits = out(arguments.max_logits);
  if (arguments.epilogue.kind == Epilogue::Kind::inverse_rope) {
    result.epilogue.cos_sin = in(arguments.epilogue.cos_sin);
    result.epilogue.positions = in(arguments.epilogue.positions);
  }
  return result;
}

void Mirror::refresh() {
  finish();
  for (Copy& copy : copies_) upload(copy);
}

void Mirror::finish() {
  host::synchronize(device_);
  for (const Copy& copy : copies_) {
    if (!copy.output) continue;
    for_each_piece(copy.host, [&](std::size_t offset, std::size_t bytes) {
      copy.memory.download(static_cast<char*>(copy.host.data) + offset, bytes, offset);
    });
  }
}

bool is_refusal(const Backend& backend, const Error& error) {
  return backend.kernel == Schedule::Kernel::sm90 &&
         std::string_view(error.what()).find("no Hopper kernel") != std::string_view::npos;
}

void run_attention(const Attention& host, const Backend& backend) {
  Mirror mirror(backend.device);
  Attention arguments = mirror.attention(host);
  backend.choose_kernel(arguments.schedule);
  attention(arguments, mirror.workspace(attention_workspace_bytes(arguments)), mirror.stream());
  mirror.finish();
}

}  // namespace raggedmla::test
