// Which GPU kernel computes an attention call: the whole list.
#include "attention/backends.hpp"
#include "attention/portable.hpp"
#include "attention/sm90/query_tiles.hpp"
#include "device/backends.hpp"
#include "gpu/runtime.hpp"

namespace raggedmla::gpu {

namespace {

#if defined(RAGGEDMLA_WITH_SM90)
constexpr bool with_sm90 = true;
#else
constexpr bool with_sm90 = false;
#endif

enum class Choice { portable, query_tiles };

Choice choose(const AttentionProblem& problem, const Schedule& schedule, int device) {
  using Kernel = Schedule::Kernel;
  const Properties& properties = require_device(device);
  if constexpr (with_sm90) {
    const bool possible = properties.compute_major == 9 && sm90::takes(problem, schedule);
    const bool better = possible && sm90::pays(problem, schedule, properties.multiprocessors);
    if (possible && (better || schedule.kernel == Kernel::sm90) && schedule.kernel != Kernel::portable) {
      return Choice::query_tiles;
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
    case Choice::portable: break;
  }
  portable::attention(problem, schedule, device, workspace, stream);
}

}  // namespace raggedmla::gpu
