// Arguments that are plain numbers, flags and names. nanobind could convert them itself, but then a wrong one is
// refused with the list of signatures; here the message says which argument it was.
#pragma once

#include <nanobind/nanobind.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace raggedmla::python {

namespace nb = nanobind;

/// An int, or anything with __index__ (NumPy's integers). TypeError for anything
/// else, ValueError outside the range.
std::int64_t integer_in(nb::handle object, const char* name, std::int64_t least, std::int64_t most);

template <std::integral Integer>
Integer integer(nb::handle object, const char* name) {
  using Limits = std::numeric_limits<Integer>;
  return static_cast<Integer>(integer_in(object, name, Limits::min(), Limits::max()));
}

/// A float, or anything with __float__ or __index__.
float number(nb::handle object, const char* name);

/// True or False, nothing else: a tensor's truth would wait for the device.
bool flag(nb::handle object, const char* name);

/// A str; valid as long as the object.
std::string_view text(nb::handle object, const char* name);

/// ValueError "<name> is '<value>', expected 'a', 'b' or 'c'".
[[noreturn]] void refuse_choice(const char* name, std::string_view value, std::span<const std::string_view> expected);

/// What a str stands for in a table of all that are known.
template <class Value>
Value choice(nb::handle object, const char* name, std::initializer_list<std::pair<std::string_view, Value>> table) {
  const std::string_view given = text(object, name);
  for (const auto& [known, value] : table) {
    if (given == known) return value;
  }
  std::vector<std::string_view> expected;
  for (const auto& row : table) expected.push_back(row.first);
  refuse_choice(name, given, expected);
}

/// An argument that takes None as far as nanobind knows: then the function refuses it, with a message that names it.
inline auto named(const char* name) { return nb::arg(name).none(); }

}  // namespace raggedmla::python
