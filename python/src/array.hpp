// Arrays of any Python framework as TensorViews: no copy, no wait, and cheap, since a serving loop comes through here
// dozens of times a layer.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "raggedmla/tensor.hpp"

namespace raggedmla::python {

namespace nb = nanobind;

/// An array that came in from Python. `owner` keeps its memory alive; a framework may not move it meanwhile.
struct Array {
  nb::object owner;
  TensorView view;
  bool read_only = false;
};

/// Reads an array's address, type, shape and strides, through the first of these that it has:
///
/// 1. the DLPack exchange table of its type (PyTorch >= 2.10): one C call, about 50 ns;
/// 2. `__array_interface__` (NumPy): also carries ml_dtypes' bfloat16, which NumPy's DLPack export refuses;
/// 3. `__dlpack__` (JAX, CuPy, older PyTorch).
///
/// Throws TypeError for anything else and ValueError for element types that the library does not know. Any other
/// one-byte type (int8, float8) is taken as u8, since cache pages come in all of them.
Array import_array(nb::handle object, const char* name);

/// The same, None allowed.
std::optional<Array> import_optional(nb::handle object, const char* name);

/// For arrays that an operator writes: a read-only one is a ValueError.
Array import_output(nb::handle object, const char* name);
void require_writable(const Array& array, const char* name);

inline OptionalTensor view(const std::optional<Array>& array) {
  return array ? OptionalTensor(array->view) : std::nullopt;
}

/// The stream that a call on this array goes to. An explicit `stream` (an integer handle, or an object with
/// `cuda_stream` or `ptr`) wins; otherwise the current stream of the array's framework (PyTorch, CuPy); otherwise the
/// default stream.
Stream stream_for(const Array& array, nb::handle stream);

/// TypeError "<name> is a <its type>, expected <expected>".
[[noreturn]] void refuse_type(const char* name, nb::handle object, const char* expected);

/// The C++ object behind an argument that must be of one of the module's classes.
template <class Class>
Class& argument(nb::handle object, const char* name, const char* class_name) {
  Class* found = nullptr;
  if (!nb::try_cast(object, found) || found == nullptr) refuse_type(name, object, class_name);
  return *found;
}

/// A new array of the same framework and device. Throws TypeError where the framework cannot make one that others may
/// write (JAX on a GPU): then the caller passes `out`. ValueError where the size overflows.
Array empty_like(const Array& like, std::initializer_list<std::int64_t> shape, DataType dtype);

}  // namespace raggedmla::python
