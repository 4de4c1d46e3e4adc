#include "bench_cpu.hpp"

#include <algorithm>

#include "attention_run.hpp"
#include "io/generator.hpp"

namespace raggedmla::cli {
namespace {

using io::Layer, io::Model, io::Phase, io::RowForm, io::Store, io::WorkloadShape;

struct Case {
  const char *suite, *name;
  WorkloadShape shape;
};

constexpr WorkloadShape prefill(Model model, Layer layer, std::int64_t tensor_parallel, RowForm rows = RowForm::list) {
  return {.model = model,
          .layer = layer,
          .phase = Phase::prefill,
          .batch = 1,
          .tokens = 256,
          .context = 8192,
          .tensor_parallel = tensor_parallel,
          .overlap = 0.5,
          .rows = rows,
          .store = Store::flat};
}

constexpr WorkloadShape decode(Model model, Layer layer, std::int64_t tensor_parallel, RowForm rows = RowForm::list) {
  return {.model = model,
          .layer = layer,
          .phase = Phase::decode,
          .batch = 16,
          .tokens = 1,
          .context = 8192,
          .tensor_parallel = tensor_parallel,
          .rows = rows,
          .store = Store::pages};
}

const Case cases[] = {
    {"prefill", "flash csa H16 K640", prefill(Model::flash, Layer::csa, 4)},
    {"prefill", "flash csa H64 K640", prefill(Model::flash, Layer::csa, 1)},
    {"prefill", "pro csa H16 K1152", prefill(Model::pro, Layer::csa, 8)},
    {"prefill", "pro hca H16 K192", prefill(Model::pro, Layer::hca, 8)},
    {"prefill", "pro hca H16 K192 ranges", prefill(Model::pro, Layer::hca, 8, RowForm::range)},
    {"decode", "flash csa H64 K640", decode(Model::flash, Layer::csa, 1)},
    {"decode", "flash csa H8 K640", decode(Model::flash, Layer::csa, 8)},
    {"decode", "pro csa H16 K1152", decode(Model::pro, Layer::csa, 8)},
    {"decode", "pro hca H16 K192", decode(Model::pro, Layer::hca, 8)},
    {"decode", "pro hca H16 K192 ranges", decode(Model::pro, Layer::hca, 8, RowForm::range)},
};

CpuBenchRow measure(const Case& description, double seconds_per_case) {
  io::TensorSet tensors = io::make_workload(description.shape);
  AttentionRun run(tensors, {});
  run.run();
  const double first = run.time(1).front();
  const int calls = std::clamp(static_cast<int>(seconds_per_case / std::max(first, 1e-6)), 3, 1000);
  const double seconds = host::median(run.time(calls));
  const Work& work = run.work();
  return {.suite = description.suite,
          .name = description.name,
          .queries = work.queries,
          .heads = work.heads,
          .rows_per_query = static_cast<double>(work.rows) / static_cast<double>(work.queries),
          .seconds = seconds,
          .calls = calls,
          .gflop_per_second = work.flops / seconds * 1e-9,
          .gb_per_second = work.bytes / seconds * 1e-9};
}

}  // namespace

std::vector<std::string> cpu_bench_suites() { return {"prefill", "decode"}; }

void run_cpu_bench(const std::string& suite, double seconds_per_case,
                   const std::function<void(const CpuBenchRow&)>& report) {
  for (const Case& description : cases) {
    if (suite == description.suite) report(measure(description, seconds_per_case));
  }
}

}  // namespace raggedmla::cli
