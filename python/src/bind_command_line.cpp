#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "command_line.hpp"
#include "objects.hpp"

namespace raggedmla::python {

void bind_command_line(nb::module_& module) {
  module.def(
      "run_command_line",
      [](const std::vector<std::string>& arguments) {
        std::vector<const char*> argv{"raggedmla"};
        for (const std::string& argument : arguments) argv.push_back(argument.c_str());
        nb::gil_scoped_release release;
        return cli::run_command_line(static_cast<int>(argv.size()), argv.data());
      },
      nb::arg("arguments"), "The command line `raggedmla ARGUMENTS...`; returns its exit code.");
}

}  // namespace raggedmla::python
