#include "raggedmla/tensor.hpp"

#include <algorithm>

namespace raggedmla {

const char* name(DataType type) {
  switch (type) {
    case DataType::f32: return "f32";
    case DataType::bf16: return "bf16";
    case DataType::u8: return "u8";
    case DataType::i32: return "i32";
    case DataType::i64: return "i64";
    case DataType::boolean: return "boolean";
  }
  return "unknown";
}

TensorView::TensorView(void* data_, DataType dtype_, std::initializer_list<std::int64_t> shape_, Device device_)
    : data(data_), dtype(dtype_), device(device_), rank(static_cast<int>(shape_.size())) {
  std::copy(shape_.begin(), shape_.end(), shape.begin());
  std::int64_t packed = 1;
  for (int i = rank - 1; i >= 0; --i) {
    stride[i] = packed;
    packed *= shape[i] > 0 ? shape[i] : 1;
  }
}

TensorView::TensorView(void* data_, DataType dtype_, std::initializer_list<std::int64_t> shape_,
                       std::initializer_list<std::int64_t> stride_, Device device_)
    : TensorView(data_, dtype_, shape_, device_) {
  std::copy(stride_.begin(), stride_.end(), stride.begin());
}

}  // namespace raggedmla
