// The command line: one file per command. Each adds itself to the parser; the chosen one becomes the action that main
// runs and turns into an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace raggedmla::cli {

/// What the process returns, for scripts (docs/cli.md).
enum ExitCode : int {
  succeeded = 0,
  check_failed = 1,  ///< the work was done, and a result is not what it should be
  bad_input = 2,     ///< options, files or arguments
  device_failed = 3,
};

using Action = std::function<ExitCode()>;

void add_info(CLI::App& app, Action& chosen);
void add_make_workload(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_verify(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);

/// `--json`, alike in every command.
void add_json_option(CLI::App& command, bool& json);

/// A command whose options live as long as its action. `add` declares them, `run` executes.
template <class Options, class Add, class Run>
void add_command(CLI::App& app, Action& chosen, const char* name, const char* description, Add add, Run run) {
  CLI::App* command = app.add_subcommand(name, description);
  const auto options = std::make_shared<Options>();
  add(*command, *options);
  command->callback([=, &chosen] { chosen = [=] { return run(*options); }; });
}

}  // namespace raggedmla::cli
