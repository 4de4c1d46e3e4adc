// Attention for every device: checks (flatten.cpp), then one switch over the backends.
#include "attention/backends.hpp"
#include "attention/flatten.hpp"
#include "base/backend.hpp"

namespace raggedmla {

namespace {

using Kernel = Schedule::Kernel;

const char* name(Kernel kernel) {
  switch (kernel) {
    case Kernel::automatic: return "automatic";
    case Kernel::reference: return "reference";
    case Kernel::cpu: return "cpu";
    case Kernel::portable: return "portable";
    case Kernel::sm90: return "sm90";
  }
  return "unknown";
}

/// The kernels that a device has; on a CPU `automatic` is the CPU backend.
Kernel kernel_for(const Checker& checker, Device device, const char* argument, Kernel asked) {
  const bool is_cpu_kernel = asked == Kernel::reference || asked == Kernel::cpu;
  if (device.type == DeviceType::cpu) {
    if (asked == Kernel::automatic) return Kernel::cpu;
    if (!is_cpu_kernel) {
      checker.fail(argument,
                   std::string("is ") + name(asked) + ", expected automatic, cpu or reference for CPU tensors");
    }
  } else if (is_cpu_kernel) {
    checker.fail(argument, std::string("is ") + name(asked) + ", expected automatic, portable or sm90 for tensors on " +
                               device_text(device));
  }
  return asked;
}

std::size_t workspace_bytes(const Checker& checker, const AttentionProblem& problem, const Schedule& schedule) {
  const Device device = checker.device();
  switch (kernel_for(checker, device, "schedule.kernel", schedule.kernel)) {
    case Kernel::reference: return 0;
    case Kernel::cpu: return cpu::attention_workspace_bytes(problem, schedule);
    default: break;
  }
  require_backend("attention", device);
  if constexpr (with_gpu) return gpu::attention_workspace_bytes(problem, schedule, device.index);
  return 0;
}

}  // namespace

std::size_t attention_workspace_bytes(const Attention& arguments) {
  Checker checker("attention");
  const AttentionProblem problem = flatten(checker, arguments);
  return workspace_bytes(checker, problem, arguments.schedule);
}

void attention(const Attention& arguments, Workspace workspace, Stream stream) {
  Checker checker("attention");
  const AttentionProblem problem = flatten(checker, arguments);
  const std::size_t needed = workspace_bytes(checker, problem, arguments.schedule);
  if (problem.tokens == 0 || problem.heads == 0) return;
  if (needed > 0) checker.workspace(workspace, needed);

  const Device device = checker.device();
  switch (kernel_for(checker, device, "schedule.kernel", arguments.schedule.kernel)) {
    case Kernel::reference: return reference::attention(problem);
    case Kernel::cpu: return cpu::attention(problem, arguments.schedule, workspace);
    default:
      if constexpr (with_gpu) return gpu::attention(problem, arguments.schedule, device.index, workspace, stream);
  }
}

void merge_states(const MergeStates& arguments, Stream stream) {
  Checker checker("merge_states");
  const MergeProblem problem = flatten(checker, arguments);
  const Device device = checker.device();
  const Kernel kernel = kernel_for(checker, device, "kernel", arguments.kernel);
  require_backend("merge_states", device);
  if (problem.tokens == 0 || problem.heads == 0) return;

  switch (kernel) {
    case Kernel::reference: return reference::merge_states(problem);
    case Kernel::cpu: return cpu::merge_states(problem);
    default:
      if constexpr (with_gpu) return gpu::merge_states(problem, device.index, stream);
  }
}

}  // namespace raggedmla
