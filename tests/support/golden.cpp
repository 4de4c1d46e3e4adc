#include "support/golden.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace raggedmla::test {

namespace {

std::vector<std::string> files_in(const char* variable, const char* folder) {
  const char* set = std::getenv(variable);
  const std::filesystem::path path =
      set != nullptr ? std::filesystem::path(set)
                     : std::filesystem::path(RAGGEDMLA_SOURCE_DIR).parent_path() / "shared" / folder;
  std::vector<std::string> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(path, absent)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<std::string> golden_files() { return files_in("RAGGEDMLA_GOLDEN", "golden"); }
std::vector<std::string> golden_layer_files() { return files_in("RAGGEDMLA_GOLDEN_LAYER", "golden-layer"); }

}  // namespace raggedmla::test
