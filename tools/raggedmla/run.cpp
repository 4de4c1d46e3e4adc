// raggedmla run: executes one workload file.
#include <fmt/format.h>

#include "attention_run.hpp"
#include "command.hpp"
#include "comparison_json.hpp"
#include "progress.hpp"
#include "reference_check.hpp"
#include "table.hpp"

namespace raggedmla::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RunOptions {
  std::string file, device = "cpu", kernel = "automatic", out, out_type = "bf16";
  bool check = false, json = false;
  std::int64_t check_queries = 0;
  int repeat = 0;
};

void print_text(const RunOptions& options, const Target& target, const Work& work, double seconds,
                const std::optional<ReferenceCheck>& check, bool passed) {
  fmt::print("{} on {}: {} queries x {} heads, {} selected rows, {:.4g} GFLOP, {}\n", options.file, target_text(target),
             work.queries, work.heads, work.rows, work.flops * 1e-9, bytes_text(work.bytes));
  if (options.repeat > 0) {
    fmt::print("time per call: {} (median of {}), {:.4g} GB/s, {:.4g} GFLOP/s\n", seconds_text(seconds), options.repeat,
               work.bytes / seconds * 1e-9, work.flops / seconds * 1e-9);
  }
  if (check) {
    const io::Comparison& comparison = check->comparison;
    const std::string extent =
        check->queries_checked == check->queries
            ? fmt::format("all {} queries", check->queries)
            : fmt::format("a sample of {} of {} queries", check->queries_checked, check->queries);
    fmt::print("check against reference: {} ({})\n", passed ? "passed" : "FAILED", extent);
    fmt::print(
        "  relative error of out {}, worst row {} (query {}, head {}); absolute error of lse {}, max_logits {}\n",
        error_text(comparison.out()), error_text(comparison.row()), comparison.worst_token(), comparison.worst_head(),
        error_text(comparison.lse()), error_text(comparison.max_logits()));
  }
  if (!options.out.empty()) fmt::print("wrote {}\n", options.out);
}

void print_json(const RunOptions& options, const Target& target, const Work& work, double seconds,
                const std::optional<ReferenceCheck>& check, bool passed) {
  Json report = {{"file", options.file}, {"device", target_text(target)}, {"queries", work.queries},
                 {"heads", work.heads},  {"selected_rows", work.rows},    {"flop", work.flops},
                 {"bytes", work.bytes}};
  if (options.repeat > 0) {
    report["repeat"] = options.repeat;
    report["seconds_per_call"] = seconds;
    report["gb_per_second"] = work.bytes / seconds * 1e-9;
    report["gflop_per_second"] = work.flops / seconds * 1e-9;
  }
  if (check) {
    Json& line = report["check"] = {{"passed", passed}, {"queries_checked", check->queries_checked}};
    add_errors(line, check->comparison);
  }
  if (!options.out.empty()) report["out"] = options.out;
  fmt::print("{}\n", report.dump(2));
}

std::vector<double> timed_calls(AttentionRun& run, int repeat) {
  Progress progress("timing", repeat);
  std::vector<double> seconds;
  // In groups, so that the bar moves without a wait between neighbouring calls.
  for (int left = repeat; left > 0;) {
    const int group = std::min(left, std::max(1, repeat / 20));
    for (const double value : run.time(group)) seconds.push_back(value);
    left -= group;
    progress.advance(group);
  }
  return seconds;
}

ExitCode run_workload(const RunOptions& options) {
  const Target target = parse_target(options.device, options.kernel);
  io::TensorSet tensors = io::TensorSet::open(options.file);
  AttentionRun run(tensors, target, options.out_type == "f32" ? DataType::f32 : DataType::bf16);
  run.run();
  double seconds = 0;
  if (options.repeat > 0) seconds = host::median(timed_calls(run, options.repeat));
  std::optional<ReferenceCheck> check;
  bool passed = true;
  if (options.check) {
    check = check_against_reference(run, options.check_queries);
    passed = check->comparison.within({});
  }
  if (!options.out.empty()) run.results().write(options.out);
  (options.json ? print_json : print_text)(options, target, run.work(), seconds, check, passed);
  return passed ? succeeded : check_failed;
}

void add_options(CLI::App& command, RunOptions& options) {
  command.add_option("file", options.file, "Workload file (safetensors)")->required();
  command.add_option("--device", options.device, "cpu, reference, cuda[:i] or hip[:i]")->capture_default_str();
  command.add_option("--kernel", options.kernel, "automatic, cpu, reference, portable or sm90")->capture_default_str();
  command.add_flag("--check", options.check,
                   "Compare with the fp64 reference; large inputs by a sample of their queries");
  command
      .add_option("--check-queries", options.check_queries,
                  "Queries to compare at most, evenly spaced (0: as many as a few seconds allow)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--out", options.out, "Write out, lse and max_logits to this file");
  command.add_option("--out-type", options.out_type, "Type of out: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  command.add_option("--repeat", options.repeat, "Time this many more calls and report the median")
      ->check(CLI::NonNegativeNumber);
  add_json_option(command, options.json);
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
  add_command<RunOptions>(app, chosen, "run", "Run one workload", add_options, run_workload);
}

}  // namespace raggedmla::cli
