#include "c_api/status.hpp"

#include <cstdio>

namespace raggedmla::c_api {
namespace {
thread_local char last_error[1024] = "";
}

raggedmla_status failed(raggedmla_status status, const char* message) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", message);
  return status;
}

}  // namespace raggedmla::c_api

const char* raggedmla_last_error(void) { return raggedmla::c_api::last_error; }
