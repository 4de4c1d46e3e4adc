// The message that a call throws, for tests that compare it.
#pragma once

#include <string>

#include "raggedmla/error.hpp"

namespace raggedmla::test {

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace raggedmla::test
