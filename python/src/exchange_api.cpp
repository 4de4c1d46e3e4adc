#include "exchange_api.hpp"

#include <array>

namespace raggedmla::python {

namespace nb = nanobind;

namespace {

const DLPackExchangeApi* read_table(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  const auto* api = static_cast<const DLPackExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) PyErr_Clear();
  const bool usable = api != nullptr && api->major_version == 1 && api->tensor_from_object != nullptr &&
                      api->current_work_stream != nullptr;
  return usable ? api : nullptr;
}

}  // namespace

// A program uses two or three array types, so the answers for the last few are kept (under the GIL). The types are
// kept alive: an address may not come to mean another type.
const DLPackExchangeApi* exchange_api(nb::handle object) {
  struct Entry {
    PyTypeObject* type = nullptr;
    const DLPackExchangeApi* api = nullptr;
  };
  static std::array<Entry, 8> known;
  static std::size_t next = 0;
  PyTypeObject* type = Py_TYPE(object.ptr());
  for (const Entry& entry : known) {
    if (entry.type == type) return entry.api;
  }
  const DLPackExchangeApi* api = read_table(reinterpret_cast<PyObject*>(type));
  Entry& slot = known[next++ % known.size()];
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  Py_XDECREF(reinterpret_cast<PyObject*>(slot.type));
  slot = {type, api};
  return api;
}

}  // namespace raggedmla::python
