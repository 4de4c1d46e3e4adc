// Where the golden files lie: in RAGGEDMLA_GOLDEN and RAGGEDMLA_GOLDEN_LAYER, or beside the checkout.
#pragma once

#include <string>
#include <vector>

namespace raggedmla::test {

/// The `.safetensors` files of `../shared/golden`, sorted; empty (tests skip visibly) where they are absent.
std::vector<std::string> golden_files();
/// The same for `../shared/golden-layer`.
std::vector<std::string> golden_layer_files();

}  // namespace raggedmla::test
