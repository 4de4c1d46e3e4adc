// The command line as a function: the program and `python -m raggedmla` are the same code.
#pragma once

namespace raggedmla::cli {

/// Parses and runs; returns the process's exit code (`ExitCode` in command.hpp). Throws nothing.
int run_command_line(int argc, const char* const* argv);

}  // namespace raggedmla::cli
