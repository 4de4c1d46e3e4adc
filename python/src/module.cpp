// raggedmla._core: the C++ API as Python functions.
#include "objects.hpp"
#include "raggedmla/error.hpp"

NB_MODULE(_core, module) {
  namespace python = raggedmla::python;
#if defined(NDEBUG)
  nanobind::set_leak_warnings(false);  // a program may end while its globals hold objects
#endif
  module.doc() = "RaggedMLA's C++ API. Use it through the package: `import raggedmla`.";
  nanobind::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const raggedmla::DeviceError& device_error) {
      PyErr_SetString(PyExc_RuntimeError, device_error.what());
    } catch (const raggedmla::Error& wrong_argument) {
      PyErr_SetString(PyExc_ValueError, wrong_argument.what());
    }
  });
  python::bind_objects(module);
  python::bind_device(module);
  python::bind_row_lists(module);
  python::bind_kv_cache(module);
  python::bind_attention(module);
#if defined(RAGGEDMLA_PYTHON_HAS_COMMAND_LINE)
  python::bind_command_line(module);
#endif
}
