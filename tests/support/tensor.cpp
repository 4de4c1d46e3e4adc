#include "support/tensor.hpp"

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <new>
#include <numbers>
#include <stdexcept>

#include "base/bfloat16.hpp"

namespace raggedmla::test {

std::uint64_t Random::bits() {
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }

std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
}

double Random::normal() {
  const std::uint64_t four = bits();
  const std::uint64_t sum = (four & 0xFFFF) + (four >> 16 & 0xFFFF) + (four >> 32 & 0xFFFF) + (four >> 48);
  return (static_cast<double>(sum) / 65536 - 2) * std::numbers::sqrt3;
}

Tensor::Tensor(DataType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
  view_.dtype = type;
  view_.rank = static_cast<int>(shape.size());
  std::int64_t packed = 1;
  for (int i = view_.rank - 1; i >= 0; --i) {
    view_.shape[i] = shape[static_cast<std::size_t>(i)];
    view_.stride[i] = strides.empty() ? packed : strides[static_cast<std::size_t>(i)];
    packed *= view_.shape[i] > 0 ? view_.shape[i] : 1;
  }
  std::int64_t extent = 1;
  for (int i = 0; i < view_.rank; ++i) extent += (view_.shape[i] > 0 ? view_.shape[i] - 1 : 0) * view_.stride[i];
  const std::size_t bytes = static_cast<std::size_t>(extent) * element_bytes(type);
  if (bytes > poisoned_bytes) {
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    zeroes_ = {static_cast<std::uint8_t*>(pages), {bytes}};
    view_.data = pages;
    return;
  }
  memory_.assign(bytes + 256, 0xA5);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  view_.data = memory_.data() + (256 - address % 256) % 256;
}

void Tensor::Unmap::operator()(std::uint8_t* memory) const { munmap(memory, bytes); }

std::int64_t Tensor::offset(std::int64_t n) const {
  std::int64_t result = 0;
  for (int i = view_.rank - 1; i >= 0; --i) {
    result += n % view_.shape[i] * view_.stride[i];
    n /= view_.shape[i];
  }
  return result;
}

double Tensor::read(std::int64_t at) const {
  switch (view_.dtype) {
    case DataType::f32: return static_cast<const float*>(view_.data)[at];
    case DataType::bf16: return float_from_bf16(static_cast<const std::uint16_t*>(view_.data)[at]);
    case DataType::i32: return static_cast<const std::int32_t*>(view_.data)[at];
    case DataType::i64: return static_cast<double>(static_cast<const std::int64_t*>(view_.data)[at]);
    case DataType::u8:
    case DataType::boolean: return static_cast<const std::uint8_t*>(view_.data)[at];
  }
  return 0;
}

void Tensor::write(std::int64_t at, double value) {
  switch (view_.dtype) {
    case DataType::f32: static_cast<float*>(view_.data)[at] = static_cast<float>(value); break;
    case DataType::bf16:
      static_cast<std::uint16_t*>(view_.data)[at] = bf16_from_float(static_cast<float>(value));
      break;
    case DataType::i32: static_cast<std::int32_t*>(view_.data)[at] = static_cast<std::int32_t>(value); break;
    case DataType::i64: static_cast<std::int64_t*>(view_.data)[at] = static_cast<std::int64_t>(value); break;
    case DataType::u8:
    case DataType::boolean: static_cast<std::uint8_t*>(view_.data)[at] = static_cast<std::uint8_t>(value); break;
  }
}

namespace {
std::int64_t element_offset(const TensorView& view, std::initializer_list<std::int64_t> index) {
  if (static_cast<int>(index.size()) != view.rank) throw std::logic_error("wrong number of indices");
  std::int64_t result = 0;
  int i = 0;
  for (const std::int64_t at : index) result += at * view.stride[i++];
  return result;
}
}  // namespace

double Tensor::get(std::initializer_list<std::int64_t> index) const { return read(element_offset(view_, index)); }
void Tensor::set(std::initializer_list<std::int64_t> index, double value) {
  write(element_offset(view_, index), value);
}
double Tensor::flat(std::int64_t n) const { return read(offset(n)); }
void Tensor::set_flat(std::int64_t n, double value) { write(offset(n), value); }

template <class Visit>
void Tensor::for_each(Visit&& visit) const {
  if (size() == 0) return;
  const int last = view_.rank - 1;
  const std::int64_t row = last < 0 ? 1 : view_.shape[last], step = last < 0 ? 1 : view_.stride[last];
  for (std::int64_t n = 0; n < size(); n += row) {
    const std::int64_t start = offset(n);
    for (std::int64_t i = 0; i < row; ++i) visit(start + i * step);
  }
}

Tensor& Tensor::fill(double value) {
  for_each([&](std::int64_t at) { write(at, value); });
  return *this;
}

Tensor& Tensor::fill_normal(Random& random, double scale) {
  for_each([&](std::int64_t at) { write(at, scale * random.normal()); });
  return *this;
}

Tensor& Tensor::fill_values(const std::vector<double>& values) {
  if (static_cast<std::int64_t>(values.size()) != size()) throw std::logic_error("wrong number of values");
  for (std::int64_t n = 0; n < size(); ++n) set_flat(n, values[static_cast<std::size_t>(n)]);
  return *this;
}

bool Tensor::padding_intact() const {
  if (memory_.empty()) return true;  // zero from the start
  const std::size_t width = element_bytes(view_.dtype);
  std::vector<bool> element(memory_.size(), false);
  const std::size_t base = static_cast<std::size_t>(static_cast<const std::uint8_t*>(view_.data) - memory_.data());
  for_each([&](std::int64_t at) {
    const std::size_t start = base + static_cast<std::size_t>(at) * width;
    for (std::size_t i = 0; i < width; ++i) element[start + i] = true;
  });
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (!element[i] && memory_[i] != 0xA5) return false;
  }
  return true;
}

}  // namespace raggedmla::test
