// The border of the C ABI: every exception becomes a status and a message of the calling thread.
#pragma once

#include <new>

#include "raggedmla/error.hpp"
#include "raggedmla/raggedmla.h"

namespace raggedmla::c_api {

/// Stores the thread's message (cut to a fixed buffer: reporting an error must not need memory).
raggedmla_status failed(raggedmla_status status, const char* message) noexcept;

template <class Function>
raggedmla_status guarded(Function&& function) noexcept {
  try {
    function();
    return RAGGEDMLA_OK;
  } catch (const DeviceError& error) {
    return failed(RAGGEDMLA_DEVICE_ERROR, error.what());
  } catch (const Error& error) {
    return failed(RAGGEDMLA_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return failed(RAGGEDMLA_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return failed(RAGGEDMLA_INTERNAL, error.what());
  } catch (...) {
    return failed(RAGGEDMLA_INTERNAL, "unknown exception");
  }
}

}  // namespace raggedmla::c_api
