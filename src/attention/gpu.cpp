// Which GPU kernel computes an attention call: the whole list.
#include <utility>

#include "attention/backends.hpp"
#include "attention/portable.hpp"
#include "attention/sm90/fp8_heads.hpp"
#include "attention/sm90/query_tiles.hpp"
#include "attention/sm90/single_query.hpp"
#include "attention/sm90/unpack.hpp"
#include "attention/unpacked.hpp"
#include "base/workspace.hpp"
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

/// Query tiles hold up to 64 heads. More of them, if they divide evenly, are calls of equally many each.
std::int64_t tile_calls(const AttentionProblem& problem) {
  const std::int64_t calls = (problem.heads + sm90::max_heads - 1) / sm90::max_heads;
  return calls > 1 && problem.heads % calls == 0 ? calls : 1;
}

/// The call-th of them.
AttentionProblem tile_call(const AttentionProblem& problem, std::int64_t call = 0) {
  AttentionProblem part = problem;
  part.heads = problem.heads / tile_calls(problem);
  const std::int64_t first = call * part.heads;
  part.q += first * problem.q_stride_head;
  if (part.sink != nullptr) part.sink += first * problem.sink_stride;
  part.out = static_cast<std::byte*>(problem.out) + first * problem.out_stride_head * (problem.out_is_f32 ? 4 : 2);
  if (part.lse != nullptr) part.lse += first * problem.lse_stride_head;
  if (part.max_logits != nullptr) part.max_logits += first * problem.max_logits_stride_head;
  return part;
}

bool takes(Choice choice, const AttentionProblem& problem, const Schedule& schedule) {
  if constexpr (with_sm90) {
    if (choice == Choice::query_tiles) return sm90::takes(tile_call(problem), schedule);
    if (choice == Choice::single_query) return sm90::single_query::takes(problem, schedule);
    if (choice == Choice::fp8_heads) return sm90::fp8_heads::takes(problem);
  }
  return choice == Choice::portable;
}

/// Whether it is faster than the portable kernel, which would read fp8 pages if rows were fp8 before they were
/// unpacked.
bool pays(Choice choice, const AttentionProblem& problem, const Schedule& schedule, int multiprocessors, bool was_fp8) {
  if constexpr (with_sm90) {
    if (choice == Choice::query_tiles) return sm90::pays(tile_call(problem), schedule, multiprocessors, was_fp8);
    if (choice == Choice::single_query) return sm90::single_query::pays(problem, multiprocessors, was_fp8);
  }
  return true;
}

/// The best kernel for the call as it is; portable if no other pays (or, where it need not, takes it).
Choice choose(const AttentionProblem& problem, const Schedule& schedule, bool must_pay, int multiprocessors,
              bool was_fp8) {
  Choice order[] = {Choice::fp8_heads, Choice::query_tiles, Choice::single_query};  // the better one first
  if constexpr (with_sm90) {
    if (takes(Choice::single_query, problem, schedule) && sm90::single_query::suits(problem, schedule)) {
      std::swap(order[1], order[2]);
    }
  }
  for (const Choice choice : order) {
    if (!takes(choice, problem, schedule)) continue;
    if (!must_pay || pays(choice, problem, schedule, multiprocessors, was_fp8)) return choice;
  }
  return Choice::portable;
}

/// What a call becomes: fp8 rows that are read often are unpacked first, and a kernel computes what is left.
struct Dispatch {
  Choice choice = Choice::portable;
  UnpackPlan unpacking;
};

/// Scratch for questions about a call whose scratch is not there yet.
std::byte* const somewhere = reinterpret_cast<std::byte*>(std::uintptr_t{256});

Dispatch dispatch(const AttentionProblem& problem, const Schedule& schedule, int device) {
  const Properties& properties = require_device(device);
  if (schedule.kernel == Schedule::Kernel::portable) return {};
  const bool forced = schedule.kernel == Schedule::Kernel::sm90;
  if (with_sm90 && properties.compute_major == 9) {
    const auto unpacking = [&](bool must_pay) -> Dispatch {
      const UnpackPlan plan = plan_unpacking(problem, schedule, must_pay);
      if (plan.bytes == 0) return {};
      return {choose(unpacked(problem, plan, somewhere), schedule, must_pay, properties.multiprocessors, true), plan};
    };
    if (const Dispatch found = unpacking(true); found.choice != Choice::portable) return found;
    if (forced && !takes(Choice::fp8_heads, problem, schedule)) {
      if (const Dispatch found = unpacking(false); found.choice != Choice::portable) return found;
    }
    const Choice choice = choose(problem, schedule, !forced, properties.multiprocessors, false);
    if (choice != Choice::portable) return {choice, {}};
  }
  if (forced) {
    throw Error(std::string("attention: kernel is sm90, but no Hopper kernel takes this call") +
                (with_sm90 ? "" : ": this build has none") + " (" + properties.architecture + ")");
  }
  return {};
}

std::size_t workspace_bytes(Choice choice, const AttentionProblem& problem, const Schedule& schedule, int device) {
  if constexpr (with_sm90) {
    if (choice == Choice::query_tiles) return sm90::workspace_bytes(tile_call(problem), schedule);
    if (choice == Choice::single_query) return 0;
    if (choice == Choice::fp8_heads) return sm90::fp8_heads::workspace_bytes(problem, schedule, device);
  }
  return portable::workspace_bytes(problem, schedule, device);
}

void attend(Choice choice, const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
            Stream stream) {
  if constexpr (with_sm90) {
    if (choice == Choice::query_tiles) {
      for (std::int64_t call = 0; call < tile_calls(problem); ++call) {
        sm90::attention(tile_call(problem, call), schedule, device, workspace, stream);
      }
      return;
    }
    if (choice == Choice::single_query) return sm90::single_query::attention(problem, device, stream);
    if (choice == Choice::fp8_heads) return sm90::fp8_heads::attention(problem, schedule, device, workspace, stream);
  }
  portable::attention(problem, schedule, device, workspace, stream);
}

/// Where unpacked rows begin in the workspace: behind what the kernel itself needs.
std::size_t unpacked_at(std::size_t kernel_bytes) {
  return kernel_bytes < counter_area_bytes ? counter_area_bytes : (kernel_bytes + 255) / 256 * 256;
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionProblem& problem, const Schedule& schedule, int device) {
  const auto [choice, plan] = dispatch(problem, schedule, device);
  if (plan.bytes == 0) return workspace_bytes(choice, problem, schedule, device);
  return unpacked_at(workspace_bytes(choice, unpacked(problem, plan, somewhere), schedule, device)) + plan.bytes;
}

void attention(const AttentionProblem& problem, const Schedule& schedule, int device, Workspace workspace,
               Stream stream) {
  const auto [choice, plan] = dispatch(problem, schedule, device);
  if (plan.bytes == 0) return attend(choice, problem, schedule, device, workspace, stream);
  AttentionProblem rows = unpacked(problem, plan, somewhere);
  const std::size_t at = unpacked_at(workspace_bytes(choice, rows, schedule, device));
  rows = unpacked(problem, plan, static_cast<std::byte*>(workspace.data) + at);
  if constexpr (with_sm90) sm90::unpack(problem, plan, rows, device, stream);
  attend(choice, rows, schedule, device, {workspace.data, at, workspace.device}, stream);
}

}  // namespace raggedmla::gpu
