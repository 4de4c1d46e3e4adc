// raggedmla: see what a machine can do, make workloads, run them, verify results, measure.
#include <fmt/format.h>

#include "command.hpp"
#include "command_line.hpp"
#include "raggedmla/raggedmla.hpp"

namespace raggedmla::cli {

int run_command_line(int argc, const char* const* argv) {
  CLI::App app(
      "Sparse attention of DeepSeek-V4 inference: check a machine, run and verify workloads, measure.\n"
      "Exit codes: 0 success, 1 a check failed, 2 bad input or usage, 3 device error.",
      "raggedmla");
  app.set_version_flag("--version", build_info().version);
  app.require_subcommand(1);
  Action chosen;
  add_info(app, chosen);
  add_make_workload(app, chosen);
  add_run(app, chosen);
  add_verify(app, chosen);
  add_bench(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? succeeded : bad_input;  // --help and --version are no errors
  }
  try {
    return chosen();
  } catch (const DeviceError& error) {
    fmt::print(stderr, "raggedmla: {}\n", error.what());
    return device_failed;
  } catch (const Error& error) {
    fmt::print(stderr, "raggedmla: {}\n", error.what());
    return bad_input;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "raggedmla: out of memory\n");
    return bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "raggedmla: {}\n", error.what());
    return bad_input;
  }
}

void add_json_option(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print one JSON document instead of text");
}

}  // namespace raggedmla::cli
