#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <charconv>
#include <limits>
#include <string>

#include "objects.hpp"
#include "raggedmla/device.hpp"
#include "scratch.hpp"

namespace raggedmla::python {

namespace {

std::string device_name(Device device) {
  switch (device.type) {
    case DeviceType::cpu: return "cpu";
    case DeviceType::cuda: return "cuda:" + std::to_string(device.index);
    case DeviceType::hip: return "hip:" + std::to_string(device.index);
  }
  return "";
}

/// "cpu", "cuda", "cuda:1", "hip:0".
Device device_named(std::string_view name) {
  const std::size_t colon = name.find(':');
  const std::string_view type = name.substr(0, colon);
  Device device;
  bool known = true;
  if (type == "cpu") device.type = DeviceType::cpu;
  else if (type == "cuda") device.type = DeviceType::cuda;
  else if (type == "hip") device.type = DeviceType::hip;
  else known = false;
  if (colon != std::string_view::npos) {
    const char* const end = name.data() + name.size();
    const auto [stopped, error] = std::from_chars(name.data() + colon + 1, end, device.index);
    known = known && error == std::errc{} && stopped == end && device.index >= 0;
  }
  if (!known) {
    throw nb::value_error(
        ("device is '" + std::string(name) + "', expected 'cpu', 'cuda', 'cuda:N', 'hip' or 'hip:N'").c_str());
  }
  return device;
}

nb::dict info() {
  const BuildInfo build = build_info();
  nb::dict result;
  result["version"] = build.version;
  result["backends"] = build.backends;
  result["cpu_instruction_sets"] = build.cpu_instruction_sets;
  result["gpu_architectures"] = build.gpu_architectures;
  nb::list all;
  for (const DeviceInfo& found : devices()) {
    nb::dict device;
    device["device"] = device_name(found.device);
    device["name"] = found.name;
    device["architecture"] = found.architecture;
    device["multiprocessors"] = found.multiprocessors;
    device["memory_bytes"] = found.memory_bytes;
    device["supported"] = found.supported;
    all.append(device);
  }
  result["devices"] = all;
  return result;
}

}  // namespace

void bind_device(nb::module_& module) {
  nb::class_<ScratchSpace>(module, "Workspace",
                           R"(Scratch memory of operators on one device, for calls that run one after the other.

Grows when a call needs more, and refuses to (ValueError) while its stream is being captured: reserve it before the
capture, or make every call once before (the largest need not take the most scratch). Buffers that were handed out stay
allocated as long as the Workspace, since a captured graph may hold their addresses. Two streams need two.)")
      .def(nb::init<>())
      .def(
          "reserve",
          [](ScratchSpace& self, nb::handle bytes, nb::handle like, nb::handle stream) {
            constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4;  // room to grow and to align
            const Array array = import_array(like, "like");
            self.reserve(static_cast<std::size_t>(integer_in(bytes, "bytes", 0, most)), array,
                         stream_for(array, stream), "Workspace.reserve");
          },
          named("bytes"), named("like"), named("stream") = nb::none(),
          nb::sig("def reserve(self, bytes: int, like: Array, "
                  "stream: int | object | None = None) -> None"),
          "At least `bytes`, on the device and by the framework of the array `like`.")
      .def_prop_ro("bytes", [](const ScratchSpace& self) { return self.workspace().bytes; });

  module.def("info", &info, nb::sig("def info() -> dict[str, typing.Any]"),
             "What this build can do (version, backends, images) and what this machine has (devices).");
  module.def(
      "preload",
      [](nb::handle device) {
        const Device target = device_named(text(device, "device"));
        nb::gil_scoped_release release;
        preload(target);
      },
      named("device"), nb::sig("def preload(device: str) -> None"),
      "Loads every kernel of a device ('cuda:0') ahead of the first call or capture. RuntimeError without an image.");
}

}  // namespace raggedmla::python
