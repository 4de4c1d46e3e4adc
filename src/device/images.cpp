#include "device/images.hpp"

#include <algorithm>
#include <cstdlib>

namespace raggedmla {

namespace {

/// "sm_103a" -> kind "sm_", number 103, suffix 'a'.
struct Architecture {
  std::string kind;
  int number = 0;
  char suffix = 0;

  explicit Architecture(const std::string& text) {
    const std::size_t digits = text.find_first_of("0123456789");
    kind = text.substr(0, digits);
    if (digits == std::string::npos) return;
    char* end = nullptr;
    number = static_cast<int>(std::strtol(text.c_str() + digits, &end, 10));
    suffix = *end;
  }
  int major() const { return number / 10; }
};

}  // namespace

const std::vector<std::string>& built_images() {
  static const std::vector<std::string> images = [] {
    std::vector<std::string> list;
    const std::string text = RAGGEDMLA_GPU_IMAGES;  // comma-separated, from CMake
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      list.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return list;
  }();
  return images;
}

bool image_runs_on(const std::string& image, const std::string& architecture) {
  if (image == architecture) return true;
  const Architecture built(image), device(architecture);
  if (device.kind != "sm_") return false;  // a gfx image runs on its own architecture only
  if (built.kind == "compute_") return built.suffix == 0 && built.number <= device.number;
  if (built.kind != "sm_" || built.major() != device.major() || built.number > device.number) return false;
  return built.suffix == 'a' ? built.number == device.number : true;
}

bool has_image_for(const std::string& architecture) {
  for (const std::string& image : built_images()) {
    if (image_runs_on(image, architecture)) return true;
  }
  return false;
}

std::string missing_image_text(const std::string& architecture) {
  std::string text = "no kernel image for " + architecture + "; this build holds ";
  const char* separator = "";
  for (const std::string& image : built_images()) {
    text += separator + image;
    separator = ", ";
  }
  return text;
}

}  // namespace raggedmla
