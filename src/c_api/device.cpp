// Build and device information of raggedmla.h.
#include "raggedmla/device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "c_api/reader.hpp"
#include "c_api/status.hpp"

namespace raggedmla::c_api {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Build information as C strings that live as long as the process.
struct BuildStrings {
  std::string version, backends, cpu_instruction_sets, gpu_architectures;
};
const BuildStrings& build_strings() {
  static const BuildStrings strings = [] {
    const BuildInfo info = build_info();
    return BuildStrings{info.version, joined(info.backends), joined(info.cpu_instruction_sets),
                        joined(info.gpu_architectures)};
  }();
  return strings;
}

/// Writes as much of `value` as the caller's structure has room for.
template <class Structure>
void write(void* target, std::size_t caller_size, Structure value) {
  value.struct_size = caller_size;
  std::memcpy(target, &value, std::min(caller_size, sizeof value));
}

raggedmla_device_info c_device_info(const DeviceInfo& device) {
  raggedmla_device_info info{};
  info.device_type = static_cast<raggedmla_device_type>(device.device.type);
  info.device_index = device.device.index;
  std::snprintf(info.name, sizeof info.name, "%s", device.name.c_str());
  std::snprintf(info.architecture, sizeof info.architecture, "%s", device.architecture.c_str());
  info.multiprocessors = device.multiprocessors;
  info.supported = device.supported ? 1 : 0;
  info.memory_bytes = device.memory_bytes;
  return info;
}

}  // namespace
}  // namespace raggedmla::c_api

using namespace raggedmla;

const char* raggedmla_version(void) { return RAGGEDMLA_VERSION; }

raggedmla_status raggedmla_get_build_info(raggedmla_build_info* info) {
  return c_api::guarded([&] {
    const std::size_t size = c_api::Reader("get_build_info").structure_size("info", info);
    const c_api::BuildStrings& strings = c_api::build_strings();
    c_api::write(info, size,
                 raggedmla_build_info{0, strings.version.c_str(), strings.backends.c_str(),
                                      strings.cpu_instruction_sets.c_str(), strings.gpu_architectures.c_str()});
  });
}

raggedmla_status raggedmla_get_devices(raggedmla_device_info* infos, size_t capacity, size_t* count) {
  return c_api::guarded([&] {
    const c_api::Reader read("get_devices");
    if (count == nullptr) read.fail("count", "is NULL");
    const std::size_t pitch = capacity == 0 ? 0 : read.structure_size("infos", infos);
    const std::vector<DeviceInfo> found = devices();
    *count = found.size();
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i) {
      c_api::write(reinterpret_cast<unsigned char*>(infos) + i * pitch, pitch, c_api::c_device_info(found[i]));
    }
  });
}

raggedmla_status raggedmla_preload(raggedmla_device_type device_type, int32_t device_index) {
  return c_api::guarded([&] { preload(c_api::Reader("preload").device("device_type", device_type, device_index)); });
}
