// raggedmla bench: measures attention on the CPU, and every operator on a GPU against the card's own ceilings.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "attention_run.hpp"
#include "bench_cpu.hpp"
#include "command.hpp"
#include "progress.hpp"
#include "raggedmla/raggedmla.hpp"
#include "table.hpp"
#if defined(RAGGEDMLA_TOOL_HAS_GPU_BENCH)
#include "harness.hpp"
#endif

namespace raggedmla::cli {
namespace {

struct BenchOptions {
  std::string device = "cpu", kernel = "automatic";
  std::vector<std::string> suites;
  double seconds = 2;
  bool quick = false, json = false;
};

// ---- CPU ---------------------------------------------------------------------------------------------------------

void print_text(const DeviceInfo& cpu, const std::vector<CpuBenchRow>& rows) {
  fmt::print("{} ({}, {} threads), RaggedMLA {}\n", cpu.name, cpu.architecture, cpu.multiprocessors,
             build_info().version);
  Table table({"suite", "case", "queries", "heads", "rows per query", "time", "calls", "GFLOP/s", "GB/s"});
  for (const CpuBenchRow& row : rows) {
    table.add({row.suite, row.name, std::to_string(row.queries), std::to_string(row.heads),
               fmt::format("{:.4g}", row.rows_per_query), seconds_text(row.seconds), std::to_string(row.calls),
               fmt::format("{:.4g}", row.gflop_per_second), fmt::format("{:.4g}", row.gb_per_second)});
  }
  fmt::print("{}", table.text());
}

void print_json(const DeviceInfo& cpu, const std::vector<CpuBenchRow>& rows) {
  nlohmann::ordered_json report = {{"version", build_info().version},
                                   {"device", cpu.name},
                                   {"architecture", cpu.architecture},
                                   {"threads", cpu.multiprocessors},
                                   {"results", nlohmann::ordered_json::array()}};
  for (const CpuBenchRow& row : rows) {
    report["results"].push_back({{"suite", row.suite},
                                 {"case", row.name},
                                 {"queries", row.queries},
                                 {"heads", row.heads},
                                 {"rows_per_query", row.rows_per_query},
                                 {"seconds", row.seconds},
                                 {"calls", row.calls},
                                 {"gflop_per_second", row.gflop_per_second},
                                 {"gb_per_second", row.gb_per_second}});
  }
  fmt::print("{}\n", report.dump(2));
}

ExitCode bench_cpu(const BenchOptions& options) {
  const std::vector<std::string> known = cpu_bench_suites();
  for (const std::string& suite : options.suites) {
    if (std::find(known.begin(), known.end(), suite) == known.end()) {
      throw Error(fmt::format("bench: --suite is '{}', expected {} on a CPU", suite, fmt::join(known, " or ")));
    }
  }
  std::vector<CpuBenchRow> rows;
  for (const std::string& suite : options.suites.empty() ? known : options.suites) {
    run_cpu_bench(suite, options.seconds, [&](const CpuBenchRow& row) { rows.push_back(row); });
  }
  (options.json ? print_json : print_text)(devices().front(), rows);
  return succeeded;
}

// ---- GPU ---------------------------------------------------------------------------------------------------------

ExitCode bench_gpu([[maybe_unused]] const BenchOptions& options, [[maybe_unused]] const Target& target) {
#if defined(RAGGEDMLA_TOOL_HAS_GPU_BENCH)
  bench::Bench bench(
      {.device = target.device, .kernel = target.kernel, .quick = options.quick, .suites = options.suites});
  bench::run_suites(bench);
  fmt::print("{}\n", options.json ? bench::json(bench) : bench::table(bench));
  return succeeded;
#else
  throw DeviceError("bench: this build has no GPU suites");
#endif
}

ExitCode run_bench(const BenchOptions& options) {
  const Target target = parse_target(options.device, options.kernel);
  if (target.device.type != DeviceType::cpu) return bench_gpu(options, target);
  if (target.kernel != Schedule::Kernel::automatic && target.kernel != Schedule::Kernel::cpu) {
    throw Error(
        fmt::format("bench: the target is {}, expected cpu or a GPU, with a kernel that it has", target_text(target)));
  }
  return bench_cpu(options);
}

void add_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--device", options.device, "cpu, cuda[:i] or hip[:i]")->capture_default_str();
  command.add_option("--suite", options.suites,
                     "Suites to run, all unless given: prefill, decode; on a GPU also lists and seeds");
  command.add_option("--kernel", options.kernel, "GPU: automatic, portable or sm90")->capture_default_str();
  command.add_option("--seconds", options.seconds, "CPU: time that one case may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--quick", options.quick, "GPU: fewer shapes");
  add_json_option(command, options.json);
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
  add_command<BenchOptions>(app, chosen, "bench", "Measure attention at the model's shapes", add_options, run_bench);
}

}  // namespace raggedmla::cli
