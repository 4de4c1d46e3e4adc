// The test tensors themselves: strides, poison between them, values in and out.
#include "support/tensor.hpp"

#include <gtest/gtest.h>

#include "raggedmla/tensor.hpp"

namespace raggedmla::test {

TEST(TensorView, PackedStrides) {
  const TensorView view(nullptr, DataType::bf16, {2, 3, 4});
  EXPECT_EQ(view.stride[0], 12);
  EXPECT_EQ(view.stride[1], 4);
  EXPECT_EQ(view.stride[2], 1);
  EXPECT_EQ(view.size(), 24);
}

TEST(TestTensor, StridesLeavePoisonBetweenRows) {
  Tensor tensor(DataType::i32, {3, 2}, {5, 1});
  tensor.fill_values({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(tensor.get({2, 1}), 6);
  EXPECT_TRUE(tensor.padding_intact());
  static_cast<std::int32_t*>(tensor.view().data)[3] = 0;
  EXPECT_FALSE(tensor.padding_intact());
}

}  // namespace raggedmla::test
