#include "attention_run.hpp"

#include <fmt/format.h>

#include <charconv>

#include "attention/flatten.hpp"
#include "base/checks.hpp"
#include "raggedmla/raggedmla.hpp"

namespace raggedmla::cli {
namespace {

using Kernel = Schedule::Kernel;

struct KernelName {
  Kernel kernel;
  const char* name;
};
constexpr KernelName kernel_names[] = {{Kernel::automatic, "automatic"},
                                       {Kernel::reference, "reference"},
                                       {Kernel::cpu, "cpu"},
                                       {Kernel::portable, "portable"},
                                       {Kernel::sm90, "sm90"}};

Kernel parse_kernel(const std::string& text) {
  for (const KernelName& candidate : kernel_names) {
    if (text == candidate.name) return candidate.kernel;
  }
  throw Error(fmt::format("--kernel is '{}', expected automatic, reference, cpu, portable or sm90", text));
}

Device parse_device(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string type = text.substr(0, colon);
  Device device;
  if (type == "cuda") device.type = DeviceType::cuda;
  else if (type == "hip") device.type = DeviceType::hip;
  else if (text != "cpu")
    throw Error(fmt::format("--device is '{}', expected cpu, reference, cuda[:i] or hip[:i]", text));
  if (colon != std::string::npos) {
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(begin, end, device.index);
    if (error != std::errc() || rest != end || device.index < 0) {
      throw Error(fmt::format("--device is '{}', expected a device number behind the colon", text));
    }
  }
  if (device.type == DeviceType::cpu) return device;
  if (host::gpu_type() != device.type) {
    throw DeviceError(fmt::format("--device is {}, but this build has no {} backend", text, type));
  }
  if (device.index >= host::gpu_count()) {
    throw DeviceError(fmt::format("--device is {}, but this machine has {} {} devices", text, host::gpu_count(), type));
  }
  return device;
}

Work count_work(const Attention& arguments) {
  const AttentionProblem problem = flatten_attention(arguments);
  Work work;
  work.queries = problem.tokens;
  work.heads = problem.heads;
  for (int s = 0; s < problem.segment_count; ++s) {
    const auto& [store, list] = problem.segments[s];
    std::int64_t rows = 0;
    for (std::int64_t t = 0; t < problem.tokens; ++t) {
      const RowSpan span = list.span(t, store.rows);
      for (std::int64_t j = 0; j < span.length; ++j) rows += list.slot(span, j, store) >= 0 ? 1 : 0;
    }
    work.rows += rows;
    work.bytes += static_cast<double>(rows) *
                  (store.kind == StoreKind::bf16 ? 2 * v4_row.query_width : v4_row.data_bytes + v4_row.scale_bytes);
  }
  const double vectors = static_cast<double>(work.queries * work.heads);
  work.flops = 2.0 * (v4_row.query_width + v4_row.value_width) * static_cast<double>(work.rows * work.heads);
  work.bytes += vectors * 2 * v4_row.query_width + vectors * (problem.out_is_f32 ? 4 : 2) * v4_row.value_width;
  return work;
}

}  // namespace

Target parse_target(const std::string& device, const std::string& kernel) {
  if (device == "reference") return {{}, Kernel::reference};
  return {parse_device(device), parse_kernel(kernel)};
}

std::string target_text(const Target& target) {
  if (target.kernel == Kernel::reference) return "reference";
  std::string text = device_text(target.device);
  for (const KernelName& candidate : kernel_names) {
    if (candidate.kernel == target.kernel && target.kernel != Kernel::automatic)
      text += fmt::format(" ({})", candidate.name);
  }
  return text;
}

AttentionRun::AttentionRun(io::TensorSet& tensors, const Target& target, DataType out_type)
    : target_(target), file_(tensors.name()), stream_(target.device) {
  host_call_ = io::bind_attention(tensors);
  try {
    bind(tensors, out_type);
  } catch (const DeviceError&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file_, io::name_tensors(host_call_, error.what())));
  }
}

void AttentionRun::bind(io::TensorSet& tensors, DataType out_type) {
  // Everything but the outputs is checked by the operator, which needs outputs to be asked at all.
  const TensorView& q = host_call_.arguments.q;
  const std::int64_t queries = q.rank > 0 ? q.shape[0] : 0, heads = q.rank > 1 ? q.shape[1] : 0;
  const auto add_results = [&](io::TensorSet& set, Attention& arguments) {
    arguments.out = set.add("out", out_type, {queries, heads, v4_row.value_width});
    arguments.lse = set.add("lse", DataType::f32, {queries, heads});
    arguments.max_logits = set.add("max_logits", DataType::f32, {queries, heads});
  };
  add_results(results_, host_call_.arguments);
  work_ = count_work(host_call_.arguments);
  if (target_.device.type != DeviceType::cpu) {
    device_inputs_ = tensors.copy_to(target_.device);
    device_results_.emplace("results", target_.device);
    call_ = io::bind_attention(*device_inputs_);
    add_results(*device_results_, call_.arguments);
  } else {
    call_.segments = host_call_.segments;
    call_.arguments = host_call_.arguments;
    call_.arguments.segments = call_.segments;
  }
  call_.arguments.schedule.kernel = target_.kernel;
  const std::size_t needed = attention_workspace_bytes(call_.arguments);
  if (needed > 0) {
    scratch_ = host::Memory(target_.device, needed);
    initialize_workspace({scratch_.data(), needed, target_.device}, stream_.get());
  }
}

void AttentionRun::enqueue(Stream stream) const {
  attention(call_.arguments, {scratch_.data(), scratch_.bytes(), target_.device}, stream);
}

void AttentionRun::run() {
  enqueue(stream_.get());
  stream_.synchronize();
  if (device_results_) device_results_->download_to(results_);
}

std::vector<double> AttentionRun::time(int repetitions) {
  if (target_.device.type == DeviceType::cpu) {
    return host::time_runs(stream_, target_.device, repetitions, [&](int) { enqueue(stream_.get()); });
  }
  const host::Graph graph(target_.device, [&](Stream stream) { enqueue(stream); });
  graph.replay(stream_);
  return host::time_runs(stream_, target_.device, repetitions, [&](int) { graph.replay(stream_); });
}

io::AttentionResult AttentionRun::result() const {
  return {host_call_.arguments.out, host_call_.arguments.lse, host_call_.arguments.max_logits};
}

}  // namespace raggedmla::cli
