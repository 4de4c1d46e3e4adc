#include "scalars.hpp"

#include <string>

#include "array.hpp"

namespace raggedmla::python {

std::int64_t integer_in(nb::handle object, const char* name, std::int64_t least, std::int64_t most) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    refuse_type(name, object, "an int");
  }
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || value < least || value > most) {
    throw nb::value_error(
        (std::string(name) + " is beyond the range of " + std::to_string(least) + " to " + std::to_string(most))
            .c_str());
  }
  return value;
}

float number(nb::handle object, const char* name) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (too_large) throw nb::value_error((std::string(name) + " is beyond the range of a float").c_str());
    refuse_type(name, object, "a float");
  }
  return static_cast<float>(value);
}

bool flag(nb::handle object, const char* name) {
  if (!PyBool_Check(object.ptr())) refuse_type(name, object, "a bool");
  return object.ptr() == Py_True;
}

std::string_view text(nb::handle object, const char* name) {
  Py_ssize_t size = 0;
  const char* characters = PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8AndSize(object.ptr(), &size) : nullptr;
  if (characters == nullptr) {
    PyErr_Clear();
    refuse_type(name, object, "a str");
  }
  return {characters, static_cast<std::size_t>(size)};
}

void refuse_choice(const char* name, std::string_view value, std::span<const std::string_view> expected) {
  std::string message = std::string(name) + " is '" + std::string(value) + "', expected ";
  for (std::size_t i = 0; i < expected.size(); ++i) {
    message += (i == 0 ? "'" : i + 1 < expected.size() ? ", '" : " or '") + std::string(expected[i]) + "'";
  }
  throw nb::value_error(message.c_str());
}

}  // namespace raggedmla::python
