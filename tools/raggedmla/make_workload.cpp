// raggedmla make-workload: writes a workload at the model's shapes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "command.hpp"
#include "io/generator.hpp"
#include "io/workload.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace raggedmla::cli {
namespace {

using namespace io;

struct MakeOptions {
  WorkloadShape shape;
  bool store_given = false;
  std::string file;
  bool json = false;
};

template <class Value>
using Names = std::map<std::string, Value>;

template <class Value>
CLI::Option* add_choice(CLI::App& command, const char* name, Value& value, const Names<Value>& names,
                        const char* description) {
  std::string choices, preset;
  for (const auto& [text, candidate] : names) {
    choices += (choices.empty() ? "" : "|") + text;
    if (candidate == value) preset = text;
  }
  return command
      .add_option_function<std::string>(
          name, [&value, names](const std::string& text) { value = names.at(text); }, description)
      ->check(CLI::IsMember(names))
      ->type_name(choices)
      ->default_str(preset);
}

void add_options(CLI::App& command, MakeOptions& options) {
  WorkloadShape& shape = options.shape;
  command.add_option("file", options.file, "File to write")->required();
  add_choice(command, "--model", shape.model, Names<Model>{{"flash", Model::flash}, {"pro", Model::pro}},
             "Heads and top-k: flash 64 and 512, pro 128 and 1024");
  add_choice(command, "--layer", shape.layer,
             Names<Layer>{{"swa", Layer::swa}, {"csa", Layer::csa}, {"hca", Layer::hca}},
             "Sliding window alone, with top-k of ratio-4 rows, or with all ratio-128 rows");
  add_choice(command, "--phase", shape.phase, Names<Phase>{{"prefill", Phase::prefill}, {"decode", Phase::decode}},
             "Prefill has one request of 256 tokens unless told otherwise, decode one token per request");
  command.add_option("--batch", shape.batch, "Requests")->capture_default_str();
  command.add_option("--tokens", shape.tokens, "Queries per request, the last of its context (prefill: 256)")
      ->capture_default_str();
  command.add_option("--context", shape.context, "Tokens of every request after this step")->capture_default_str();
  command.add_option("--tensor-parallel", shape.tensor_parallel, "Parts that the model's heads are divided into")
      ->capture_default_str();
  command.add_option("--overlap", shape.overlap, "Share of top-k entries that neighbouring queries have in common")
      ->capture_default_str();
  add_choice(command, "--rows", shape.rows, Names<RowForm>{{"list", RowForm::list}, {"range", RowForm::range}},
             "Form of window and ratio-128 selections (top-k is always a list)");
  add_choice(command, "--store", shape.store, Names<Store>{{"flat", Store::flat}, {"pages", Store::pages}},
             "bf16 workspace, or fp8 pages with shuffled block tables (prefill: flat)");
  add_choice(command, "--window-encoding", shape.window_encoding,
             Names<Fp8Encoding>{{"ocp", Fp8Encoding::ocp}, {"fnuz", Fp8Encoding::fnuz}}, "e4m3 of window pages");
  command.add_option("--seed", shape.seed, "Seed of all random values")->capture_default_str();
  add_json_option(command, options.json);
  command.parse_complete_callback([&command, &shape] {
    if (shape.phase != Phase::prefill) return;
    if (command.count("--store") == 0) shape.store = Store::flat;
    if (command.count("--tokens") == 0) shape.tokens = 256;
  });
}

ExitCode make(const MakeOptions& options) {
  std::optional<Progress> progress;
  const TensorSet tensors = make_workload(options.shape, [&](std::int64_t step, std::int64_t total) {
    if (!progress) progress.emplace("making rows", total);
    progress->advance(step);
  });
  progress.reset();
  tensors.write(options.file);
  if (options.json) {
    nlohmann::ordered_json report = {{"file", options.file}, {"metadata", tensors.metadata}};
    for (const NamedTensor& tensor : tensors.tensors()) {
      report["tensors"][tensor.name] = {
          {"dtype", safetensors_name(tensor.view.dtype)},
          {"shape", std::vector(tensor.view.shape.begin(), tensor.view.shape.begin() + tensor.view.rank)}};
    }
    fmt::print("{}\n", report.dump(2));
    return succeeded;
  }
  Table table({"tensor", "type", "shape", "size"});
  for (const NamedTensor& tensor : tensors.tensors()) {
    const auto shape = std::span(tensor.view.shape).first(static_cast<std::size_t>(tensor.view.rank));
    table.add({tensor.name, safetensors_name(tensor.view.dtype), fmt::format("[{}]", fmt::join(shape, ", ")),
               bytes_text(static_cast<double>(packed_bytes(tensor.view)))});
  }
  fmt::print("{}wrote {}\n", table.text(), options.file);
  return succeeded;
}

}  // namespace

void add_make_workload(CLI::App& app, Action& chosen) {
  add_command<MakeOptions>(app, chosen, "make-workload", "Write a workload at the model's shapes", add_options, make);
}

}  // namespace raggedmla::cli
