// From C structures to the C++ API's types: each conversion once, for all operators.
#pragma once

#include <cstring>
#include <type_traits>

#include "raggedmla/attention.hpp"
#include "raggedmla/error.hpp"
#include "raggedmla/raggedmla.h"

namespace raggedmla::c_api {

/// Size of a structure in its first released version; smaller ones are refused. When a structure grows, its old size
/// goes here as a specialisation, and the fields beyond a caller's size read as zero.
template <class Structure>
inline constexpr std::size_t first_size = sizeof(Structure);

/// Reads the arguments of one operator. Errors read "build_ragged: out is NULL".
class Reader {
 public:
  explicit Reader(const char* operator_name) : operator_(operator_name) {}

  [[noreturn]] void fail(const char* argument, const std::string& problem) const {
    throw Error(std::string(operator_) + ": " + argument + " " + problem);
  }

  /// The caller's size of a structure that is written to; its contents are not looked at.
  template <class Structure>
  std::size_t structure_size(const char* argument, const Structure* given) const {
    return plausible_size(argument, given, first_size<Structure>, sizeof(Structure));
  }

  template <class Structure>
  Structure structure(const char* argument, const Structure* given) const {
    const std::size_t size = plausible_size(argument, given, first_size<Structure>, sizeof(Structure));
    require_zero_tail(argument, given, sizeof(Structure), size);
    Structure copy{};
    std::memcpy(&copy, given, size < sizeof copy ? size : sizeof copy);
    if constexpr (requires { copy.reserved; }) {  // a newer header may give the place a meaning
      if (copy.reserved != 0) fail(argument, "has reserved = " + std::to_string(copy.reserved) + ", expected 0");
    }
    return copy;
  }

  /// C and C++ number their enumerators alike (asserted in reader.cpp).
  template <class Enum>
  Enum enumerator(const char* argument, std::int32_t value, Enum last) const {
    if (value < 0 || value > static_cast<std::int32_t>(last)) {
      fail(argument,
           "has value " + std::to_string(value) + ", expected 0 to " + std::to_string(static_cast<std::int32_t>(last)));
    }
    return static_cast<Enum>(value);
  }

  TensorView tensor(const char* argument, const raggedmla_tensor* given) const;
  OptionalTensor optional(const char* argument, const raggedmla_tensor* given) const;
  Device device(const char* argument, raggedmla_device_type type, std::int32_t index) const;
  Workspace workspace(const raggedmla_workspace* given) const;  // NULL: no scratch

  KvSource kv(const char* argument, const raggedmla_kv* given) const;
  PagedKv paged(const char* argument, const raggedmla_kv* given) const;
  RowSelection rows(const char* argument, const raggedmla_rows* given) const;
  QueryLayout queries(const raggedmla_query_layout* given) const;
  Epilogue epilogue(const raggedmla_epilogue* given) const;  // NULL: none
  Schedule schedule(const raggedmla_schedule* given) const;  // NULL: the defaults
  Schedule::Kernel kernel(raggedmla_kernel value) const;

  /// A list output of the kinds that `Output` (RaggedOutput, ListOutput or RangeOrListOutput) can hold.
  template <class Output>
  Output output(const raggedmla_list_output* given) const;

 private:
  std::size_t plausible_size(const char* argument, const void* given, std::size_t first, std::size_t known) const;
  /// A caller of a newer header may not use what this library does not know.
  void require_zero_tail(const char* argument, const void* given, std::size_t known, std::size_t size) const;

  const char* operator_;
};

template <class Output>
Output Reader::output(const raggedmla_list_output* given) const {
  const raggedmla_list_output list = structure("out", given);
  switch (list.kind) {
    case RAGGEDMLA_LIST_RAGGED:
      if constexpr (std::is_convertible_v<RaggedOutput, Output>) {
        return RaggedOutput{tensor("out.indices", list.indices), tensor("out.indptr", list.indptr),
                            optional("out.lengths", list.lengths)};
      }
      break;
    case RAGGEDMLA_LIST_DENSE:
      if constexpr (std::is_convertible_v<DenseOutput, Output>) {
        return DenseOutput{tensor("out.indices", list.indices), optional("out.lengths", list.lengths)};
      }
      break;
    case RAGGEDMLA_LIST_RANGE:
      if constexpr (std::is_convertible_v<RangeOutput, Output>) {
        return RangeOutput{tensor("out.first", list.first), tensor("out.count", list.count)};
      }
      break;
  }
  fail("out.kind", "has value " + std::to_string(list.kind) + ", which this operator does not take");
}

}  // namespace raggedmla::c_api
