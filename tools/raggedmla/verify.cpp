// raggedmla verify: every file of a folder against the results it holds.
#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "command.hpp"
#include "comparison_json.hpp"
#include "progress.hpp"
#include "raggedmla/error.hpp"
#include "table.hpp"

namespace raggedmla::cli {
namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  std::string path, device = "cpu", kernel = "automatic";
  bool json = false;
};

std::vector<fs::path> files_of(const std::string& path) {
  if (fs::is_regular_file(path)) return {path};
  if (!fs::is_directory(path)) throw Error(fmt::format("{}: expected a folder or a safetensors file", path));
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw Error(fmt::format("{}: holds no *.safetensors file", path));
  return files;
}

/// Nothing for files that hold neither a call nor a layer.
std::vector<Verdict> verify_file(const fs::path& path, const Target& target) {
  io::TensorSet tensors = io::TensorSet::open(path);
  std::vector<Verdict> verdicts;
  if (tensors.metadata.contains("op")) {
    verdicts = verify_workload(tensors, target);
  } else if (tensors.contains("attn_out")) {
    verdicts = verify_layer(tensors, target);
  }
  for (Verdict& verdict : verdicts) verdict.file = path.filename();
  return verdicts;
}

void print_text(const std::vector<Verdict>& verdicts, const std::vector<std::string>& skipped, const Target& target) {
  Table table({"file", "check", "out", "worst row", "lse", "max_logits", "result"});
  std::size_t passed = 0;
  for (const Verdict& verdict : verdicts) {
    passed += verdict.passed ? 1 : 0;
    std::vector<std::string> row = {verdict.file, verdict.what, "-", "-", "-", "-"};
    if (verdict.comparison) {
      row[2] = error_text(verdict.comparison->out());
      row[3] = error_text(verdict.comparison->row());
      row[4] = error_text(verdict.comparison->lse());
      row[5] = error_text(verdict.comparison->max_logits());
    }
    row.push_back((verdict.passed ? "passed" : "FAILED") + (verdict.note.empty() ? "" : ": " + verdict.note));
    table.add(row);
  }
  fmt::print("{}", table.text());
  for (const std::string& name : skipped)
    fmt::print("{}: skipped, neither a workload nor a recorded attention layer\n", name);
  fmt::print("{} of {} checks passed on {}\n", passed, verdicts.size(), target_text(target));
}

void print_json(const std::vector<Verdict>& verdicts, const std::vector<std::string>& skipped, const Target& target) {
  nlohmann::ordered_json report = {{"device", target_text(target)}, {"checks", nlohmann::ordered_json::array()}};
  bool all = true;
  for (const Verdict& verdict : verdicts) {
    nlohmann::ordered_json row = {{"file", verdict.file}, {"check", verdict.what}, {"passed", verdict.passed}};
    if (verdict.comparison) add_errors(row, *verdict.comparison);
    if (!verdict.note.empty()) row["note"] = verdict.note;
    report["checks"].push_back(row);
    all = all && verdict.passed;
  }
  report["skipped"] = skipped;
  report["passed"] = all;
  fmt::print("{}\n", report.dump(2));
}

ExitCode verify(const VerifyOptions& options) {
  const Target target = parse_target(options.device, options.kernel);
  const std::vector<fs::path> files = files_of(options.path);
  std::vector<Verdict> verdicts;
  std::vector<std::string> skipped;
  {
    Progress progress("verifying", static_cast<std::int64_t>(files.size()));
    for (const fs::path& path : files) {
      const std::vector<Verdict> found = verify_file(path, target);
      if (found.empty()) skipped.push_back(path.filename());
      verdicts.insert(verdicts.end(), found.begin(), found.end());
      progress.advance();
    }
  }
  (options.json ? print_json : print_text)(verdicts, skipped, target);
  if (verdicts.empty()) throw Error(fmt::format("{}: holds nothing that can be verified", options.path));
  const bool all = std::all_of(verdicts.begin(), verdicts.end(), [](const Verdict& verdict) { return verdict.passed; });
  return all ? succeeded : check_failed;
}

void add_options(CLI::App& command, VerifyOptions& options) {
  command.add_option("path", options.path, "Folder with *.safetensors files, or one file")->required();
  command.add_option("--device", options.device, "cpu, reference, cuda[:i] or hip[:i]")->capture_default_str();
  command.add_option("--kernel", options.kernel, "automatic, cpu, reference, portable or sm90")->capture_default_str();
  add_json_option(command, options.json);
}

}  // namespace

void add_verify(CLI::App& app, Action& chosen) {
  add_command<VerifyOptions>(app, chosen, "verify", "Check stored results: a table, and exit code 1 on a difference",
                             add_options, verify);
}

}  // namespace raggedmla::cli
