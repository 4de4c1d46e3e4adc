// The C function table that a DLPack producer may hang on its array type (`__dlpack_c_exchange_api__`, DLPack 1.2 and
// later): views and the current stream without a Python call.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace raggedmla::python {

/// Binary layout of `DLPackExchangeAPI`, major version 1. Entries that are not used here are untyped.
struct DLPackExchangeApi {
  std::uint32_t major_version;
  std::uint32_t minor_version;
  const void* previous_api;
  void* managed_tensor_allocator;
  void* managed_tensor_from_object;
  void* managed_tensor_to_object;
  /// Fills a view that is valid while the object lives and keeps its storage. Nonzero: a Python error is set.
  int (*tensor_from_object)(void* py_object, nanobind::dlpack::dltensor* out);
  int (*current_work_stream)(int device_type, std::int32_t device_index, void** out);
};

/// The table of the object's type, or null.
const DLPackExchangeApi* exchange_api(nanobind::handle object);

}  // namespace raggedmla::python
