#include "array.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <limits>
#include <string>

#include "exchange_api.hpp"
#include "scalars.hpp"

namespace raggedmla::python {

namespace {

constexpr const char* expected_array = "an array (NumPy, PyTorch, JAX, CuPy or anything that exports DLPack)";

[[noreturn]] void refuse_dtype(const char* name, const std::string& dtype) {
  throw nb::value_error((std::string(name) + " is " + dtype + ", expected f32, bf16, u8, i32, i64 or boolean").c_str());
}

DataType data_type(nb::dlpack::dtype type, const char* name) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  if (type.lanes == 1) {
    if (code == Code::Float && type.bits == 32) return DataType::f32;
    if (code == Code::Bfloat && type.bits == 16) return DataType::bf16;
    if (code == Code::Int && type.bits == 32) return DataType::i32;
    if (code == Code::Int && type.bits == 64) return DataType::i64;
    if (code == Code::Bool && type.bits == 8) return DataType::boolean;
    if (type.bits == 8) return DataType::u8;
  }
  static constexpr const char* names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const std::string kind = type.code < std::size(names) ? names[type.code] : "type";
  refuse_dtype(name, kind + std::to_string(type.bits));
}

Device device_of(nb::dlpack::device device, const char* name) {
  switch (device.device_type) {
    case 1:   // CPU
    case 3:   // CUDA pinned host memory
    case 11:  // ROCm pinned host memory
      return {DeviceType::cpu, 0};
    case 2:   // CUDA
    case 13:  // CUDA managed memory
      return {DeviceType::cuda, device.device_id};
    case 10:  // ROCm
      return {DeviceType::hip, device.device_id};
    default:
      throw nb::value_error((std::string(name) + " is on a device of DLPack type " +
                             std::to_string(device.device_type) + ", expected CPU, CUDA or ROCm")
                                .c_str());
  }
}

void set_rank(TensorView& view, std::int64_t rank, const char* name) {
  if (rank > TensorView::max_rank) {
    throw nb::value_error((std::string(name) + " has " + std::to_string(rank) + " dimensions, at most " +
                           std::to_string(TensorView::max_rank) + " are taken")
                              .c_str());
  }
  view.rank = static_cast<int>(rank);
}

/// Shape and strides in elements; no strides means packed.
void set_shape(TensorView& view, std::int64_t rank, const std::int64_t* shape, const std::int64_t* strides,
               const char* name) {
  set_rank(view, rank, name);
  std::int64_t packed = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.stride[i] = strides != nullptr ? strides[i] : packed;
    packed *= shape[i];
  }
}

// ---- the three ways in ---------------------------------------------------------------------------------------------

Array from_exchange(const DLPackExchangeApi& api, nb::handle object, const char* name) {
  nb::dlpack::dltensor tensor;
  if (api.tensor_from_object(object.ptr(), &tensor) != 0) {  // a sparse or conjugated tensor, one without memory
    nb::python_error cause;
    nb::raise_from(cause, PyExc_ValueError, "%s cannot be read as an array", name);
  }
  Array array;
  array.owner = nb::borrow(object);
  array.view.dtype = data_type(tensor.dtype, name);
  array.view.device = device_of(tensor.device, name);
  array.view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  set_shape(array.view, tensor.ndim, tensor.shape, tensor.strides, name);
  return array;
}

DataType numpy_data_type(nb::handle object, const char* name) {
  const nb::object dtype = object.attr("dtype");
  const std::string text = nb::cast<std::string>(nb::str(dtype));
  if (text == "bfloat16") return DataType::bf16;
  if (text == "float32") return DataType::f32;
  if (text == "int32") return DataType::i32;
  if (text == "int64") return DataType::i64;
  if (text == "bool") return DataType::boolean;
  // int8, uint8, and ml_dtypes' float8, whose kind is V or f; but no text (S) and no structures.
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  const bool number = kind == "i" || kind == "u" || kind == "f" || (kind == "V" && text.starts_with("float8"));
  if (number && nb::cast<int>(dtype.attr("itemsize")) == 1) return DataType::u8;
  refuse_dtype(name, text);
}

Array from_interface(const nb::dict& interface, nb::handle object, const char* name) {
  Array array;
  array.owner = nb::borrow(object);
  array.view.dtype = numpy_data_type(object, name);
  const auto data = nb::cast<nb::tuple>(interface["data"]);
  array.view.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(data[0]));
  array.read_only = nb::cast<bool>(data[1]);
  const auto shape = nb::cast<nb::tuple>(interface["shape"]);
  set_rank(array.view, static_cast<std::int64_t>(shape.size()), name);
  for (int i = 0; i < array.view.rank; ++i) array.view.shape[i] = nb::cast<std::int64_t>(shape[i]);
  const nb::object strides = interface["strides"];
  const auto bytes = static_cast<std::int64_t>(element_bytes(array.view.dtype));
  std::int64_t packed = 1;
  for (int i = array.view.rank - 1; i >= 0; --i) {
    const std::int64_t stride = strides.is_none() ? packed * bytes : nb::cast<std::int64_t>(strides[i]);
    if (stride % bytes != 0) throw nb::value_error((std::string(name) + " has strides between elements").c_str());
    array.view.stride[i] = stride / bytes;
    packed *= array.view.shape[i];
  }
  return array;
}

/// NumPy's own arrays and scalars; of other objects with an `__array_interface__` those that look like them.
Array from_numpy(nb::handle interface, nb::handle object, const char* name) {
  try {
    return from_interface(nb::cast<nb::dict>(interface), object, name);
  } catch (const nb::cast_error&) {
  } catch (const nb::python_error&) {
  }
  refuse_type(name, object, expected_array);
}

template <class NdArray>
void read_ndarray(Array& array, const NdArray& source, const char* name) {
  array.view.dtype = data_type(source.dtype(), name);
  array.view.device = device_of({source.device_type(), source.device_id()}, name);
  array.view.data = const_cast<void*>(static_cast<const void*>(source.data()));
  set_rank(array.view, static_cast<std::int64_t>(source.ndim()), name);
  for (int i = 0; i < array.view.rank; ++i) {
    array.view.shape[i] = static_cast<std::int64_t>(source.shape(i));
    array.view.stride[i] = source.stride(i);
  }
}

Array from_dlpack(nb::handle object, const char* name) {
  Array array;
  array.owner = nb::borrow(object);
  nb::ndarray<> writable;
  if (nb::try_cast(object, writable, false)) {
    read_ndarray(array, writable, name);
    return array;
  }
  nb::ndarray<nb::ro> constant;
  if (!nb::try_cast(object, constant, false)) {
    refuse_type(name, object, expected_array);
  }
  read_ndarray(array, constant, name);
  array.read_only = true;
  return array;
}

/// Functions of raggedmla._arrays, which knows the frameworks by name.
nb::handle frameworks() {
  static PyObject* module = nb::module_::import_("raggedmla._arrays").release().ptr();
  return module;
}

Stream stream_of_handle(nb::handle handle, const char* name) {
  constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();  // user addresses have fewer bits
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(integer_in(handle, name, 0, highest)))};
}

}  // namespace

void refuse_type(const char* name, nb::handle object, const char* expected) {
  const auto type = nb::cast<std::string>(nb::inst_name(object));
  throw nb::type_error((std::string(name) + " is a " + type + ", expected " + expected).c_str());
}

Array import_array(nb::handle object, const char* name) {
  if (const DLPackExchangeApi* api = exchange_api(object)) return from_exchange(*api, object, name);
  if (const nb::object interface = nb::getattr(object, "__array_interface__", nb::none()); !interface.is_none()) {
    return from_numpy(interface, object, name);
  }
  return from_dlpack(object, name);
}

std::optional<Array> import_optional(nb::handle object, const char* name) {
  if (object.is_none()) return std::nullopt;
  return import_array(object, name);
}

void require_writable(const Array& array, const char* name) {
  if (array.read_only) throw nb::value_error((std::string(name) + " is read-only, but the operator writes it").c_str());
}

Array import_output(nb::handle object, const char* name) {
  Array array = import_array(object, name);
  require_writable(array, name);
  return array;
}

Stream stream_for(const Array& array, nb::handle stream) {
  if (PyLong_Check(stream.ptr())) return stream_of_handle(stream, "stream");
  if (!stream.is_none()) {
    for (const char* attribute : {"cuda_stream", "ptr"}) {
      const nb::object handle = nb::getattr(stream, attribute, nb::none());
      if (!handle.is_none()) return stream_of_handle(handle, "stream's handle");
    }
    refuse_type("stream", stream, "an integer handle or an object with cuda_stream or ptr");
  }
  const Device device = array.view.device;
  if (device.type == DeviceType::cpu) return {};
  if (const DLPackExchangeApi* api = exchange_api(array.owner)) {
    void* current = nullptr;
    const int dlpack_type = device.type == DeviceType::cuda ? 2 : 10;
    if (api->current_work_stream(dlpack_type, device.index, &current) != 0) throw nb::python_error();
    return {current};
  }
  return {reinterpret_cast<void*>(
      nb::cast<std::uintptr_t>(frameworks().attr("current_stream")(array.owner, device.index)))};
}

Array empty_like(const Array& like, std::initializer_list<std::int64_t> shape, DataType dtype) {
  std::int64_t bytes = static_cast<std::int64_t>(element_bytes(dtype));
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      throw nb::value_error("out is too large to be made: its size overflows 63 bits");
    }
  }
  nb::object sizes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  Py_ssize_t i = 0;
  for (const std::int64_t size : shape) PyTuple_SET_ITEM(sizes.ptr(), i++, PyLong_FromLongLong(size));
  return import_output(frameworks().attr("empty")(like.owner, sizes, name(dtype)), "out");
}

}  // namespace raggedmla::python
