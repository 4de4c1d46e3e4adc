// Which GPU kernel computes an attention call: the whole list.
#include <utility>

#include "attention/backends.hpp"
#include "attention/portable.hpp"
#include "attention/sm90/fp8_heads.hpp"
#include "attention/sm90/query_tiles.hpp"
#include "attention/sm90/single_query.hpp"
#include "device/backends.hpp"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

namespace {

#if defined(RAGGEDMLA_WITH_SM90)
constexpr bool with_sm90 = true;
#else
constexpr bool with_sm90 = false;
#endif

enum class Choice { portable, query_tiles, single_query, fp8_heads };

bool takes(Choice choice, const AttentionProblem& problem, const Schedule& schedule) {
  if constexpr (with_sm90) {
    if (choice == Choice::query_tiles) return sm90::takes(problem, schedule);
    if (choice == Choice::single_query) return sm90::single_query::takes(problem, schedule);
    if (choice == Choice::fp8_heads) return sm90::fp8_heads::takes(problem);
  }
  return choice == Choice::portable;
}

/// Whether it is faster than the portable kernel.
bool pays(Choice choice, const AttentionProblem& problem, const Schedule& schedule, int multiprocessors) {
  if constexpr (with_sm90) {
    if (choice == Choice::query_tiles) return sm90::pays(problem, schedule, multiprocessors);
    if (choice == Choice::single_query) return sm90::single_query::pays(problem, multiprocessors);
  }
  return true;
}

Choice choose(const AttentionProblem& problem, const Schedule& schedule, int device) {
  using Kernel = Schedule::Kernel;
  const Properties& properties = require_device(device);
  if (schedule.kernel == Kernel::portable) return Choice::portable;
  if (with_sm90 && properties.compute_major == 9) {
    Choice order[] = {Choice::fp8_heads, Choice::query_tiles, Choice::single_query};  // the better one first
    if constexpr (with_sm90) {
      if (sm90::single_query::suits(problem, schedule)) std::swap(order[1], order[2]);
    }
    for (const Choice choice : order) {
      if (!takes(choice, problem, schedule)) continue;
      if (schedule.kernel == Kernel::sm90 || pays(choice, problem, schedule, properties.multiprocessors)) return choice;
    }
  }
  if (schedule.kernel == Kernel::sm90) {
    throw Error(std::string("attention: kernel is sm90, but no Hopper kernel takes this call") +
                (with_sm90 ? "" : ": this build has none") + " (" + properties.architecture + ")");
  }
  return Choice::portable;
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionProblem& problem, const Schedule& schedule, int device) {
  switch (choose(problem, schedule, device)) {
    case Choice::query_tiles:
      if constexpr (with_sm90) return sm90::workspace_bytes(problem, schedule);
      [[fallthrough]];
    case Choice::single_query: return 0;
    case Choice::fp8_heads:
      if constexpr (with_sm90) return sm90::fp8_heads::workspace_bytes(problem, schedule, device);
      [[fallthrough]];
    case Choice::portable: break;
  }
  return portable::workspace_bytes(problem, schedule, device);
}

void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream) {
  switch (choose(problem, schedule, device)) {
    case Choice::query_tiles:
      if constexpr (with_sm90) return sm90::attention(problem, schedule, device, workspace, stream);
      [[fallthrough]];
    case Choice::single_query:
      if constexpr (with_sm90) return sm90::single_query::attention(problem, device, stream);
      [[fallthrough]];
    case Choice::fp8_heads:
      if constexpr (with_sm90) return sm90::fp8_heads::attention(problem, schedule, device, workspace, stream);
      [[fallthrough]];
    case Choice::portable: break;
  }
  portable::attention(problem, schedule, device, workspace, stream);
}

}  // namespace raggedmla::gpu
