// raggedmla info: what this build and this machine can do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/checks.hpp"
#include "command.hpp"
#include "raggedmla/device.hpp"
#include "table.hpp"

namespace raggedmla::cli {
namespace {

struct InfoOptions {
  bool json = false;
};

/// The kernels that attention can choose from there, the preferred one first.
std::vector<std::string> attention_kernels(const DeviceInfo& info) {
  if (info.device.type == DeviceType::cpu) return {"cpu", "reference"};
  if (!info.supported) return {};
  const std::vector<std::string> images = build_info().gpu_architectures;
  const bool has_hopper_kernels = std::find(images.begin(), images.end(), "sm_90a") != images.end();
  if (info.architecture == "sm_90" && has_hopper_kernels) return {"sm90", "portable"};
  return {"portable"};
}

void print_text(const BuildInfo& build, const std::vector<DeviceInfo>& all) {
  fmt::print("RaggedMLA {}\nbackends: {}\nCPU instruction sets built in: {}\nGPU images built in: {}\n\n",
             build.version, fmt::join(build.backends, ", "), fmt::join(build.cpu_instruction_sets, ", "),
             build.gpu_architectures.empty() ? "none" : fmt::format("{}", fmt::join(build.gpu_architectures, ", ")));
  Table table({"device", "name", "architecture", "units", "memory", "attention kernels"});
  for (const DeviceInfo& info : all) {
    const auto kernels = attention_kernels(info);
    table.add({device_text(info.device), info.name, info.architecture, std::to_string(info.multiprocessors),
               bytes_text(static_cast<double>(info.memory_bytes)),
               kernels.empty() ? "none: no image for it in this build" : fmt::format("{}", fmt::join(kernels, ", "))});
  }
  fmt::print("{}", table.text());
}

void print_json(const BuildInfo& build, const std::vector<DeviceInfo>& all) {
  nlohmann::ordered_json report = {{"version", build.version},
                                   {"backends", build.backends},
                                   {"cpu_instruction_sets", build.cpu_instruction_sets},
                                   {"gpu_architectures", build.gpu_architectures},
                                   {"devices", nlohmann::ordered_json::array()}};
  for (const DeviceInfo& info : all) {
    report["devices"].push_back({{"device", device_text(info.device)},
                                 {"name", info.name},
                                 {"architecture", info.architecture},
                                 {"multiprocessors", info.multiprocessors},
                                 {"memory_bytes", info.memory_bytes},
                                 {"supported", info.supported},
                                 {"attention_kernels", attention_kernels(info)}});
  }
  fmt::print("{}\n", report.dump(2));
}

ExitCode show(const InfoOptions& options) {
  (options.json ? print_json : print_text)(build_info(), devices());
  return succeeded;
}

}  // namespace

void add_info(CLI::App& app, Action& chosen) {
  add_command<InfoOptions>(
      app, chosen, "info", "Show version, backends, devices and kernels",
      [](CLI::App& command, InfoOptions& options) { add_json_option(command, options.json); }, show);
}

}  // namespace raggedmla::cli
