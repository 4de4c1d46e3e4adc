// libFuzzer target: any bytes are a file. Reading either throws Error or gives views that lie inside the file.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "io/safetensors.hpp"
#include "raggedmla/error.hpp"

using namespace raggedmla;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const io::SafetensorsFile file(bytes, "fuzz");
    for (const auto& [name, entry] : file.tensors()) {
      const auto tensor = file.bytes(name);
      if (tensor.data() < bytes.data() || tensor.data() + tensor.size() > bytes.data() + bytes.size()) std::abort();
      unsigned sum = 0;
      for (const std::byte value : tensor) sum += std::to_integer<unsigned>(value);
      volatile unsigned sink = sum;  // every byte of the tensor is really read
      static_cast<void>(sink);
      try {
        const TensorView view = file.view(name);
        if (static_cast<std::size_t>(view.size()) * element_bytes(view.dtype) != tensor.size()) std::abort();
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
