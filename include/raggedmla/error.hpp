// What goes wrong in a call, and how the caller learns of it.
#pragma once

#include <stdexcept>
#include <string>

namespace raggedmla {

/// Thrown by every operator, before any work is launched, when an argument is not what the operator takes.
///
/// The message names the argument, what it got and what it takes, for example
/// `attention: q has shape [4, 16, 500], expected [*, *, 512]`. Nothing has been written when it is thrown.
/// The C ABI turns it into a status, the command line into exit code 2, Python into `ValueError`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown when the device refuses: no such device, no kernel image for its architecture, a failed launch.
/// The message names the call, the device's answer and, for a missing image, the architectures built in.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace raggedmla
