// Workloads at the shapes of DeepSeek-V4, filled with random numbers.
#pragma once

#include <cstdint>
#include <functional>

#include "io/tensor_set.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::io {

enum class Model : std::uint8_t { flash, pro };
enum class Layer : std::uint8_t {
  swa,  ///< sliding window only
  csa,  ///< window and top-k of the ratio-4 rows
  hca,  ///< window and all ratio-128 rows
};
enum class Phase : std::uint8_t { prefill, decode };
enum class RowForm : std::uint8_t { list, range };
enum class Store : std::uint8_t { flat, pages };

/// Sizes of a model's attention layers.
struct ModelShape {
  std::int64_t heads;
  std::int64_t top_k;
};
constexpr ModelShape model_shape(Model model) {
  return model == Model::flash ? ModelShape{64, 512} : ModelShape{128, 1024};
}

inline constexpr std::int64_t window_rows = 128;
inline constexpr std::int64_t window_rows_per_page = 64;
/// Tokens that one compressed row stands for, 0 for layers without compressed rows.
constexpr std::int64_t compress_ratio(Layer layer) { return layer == Layer::csa ? 4 : layer == Layer::hca ? 128 : 0; }
/// Engines keep 256 tokens of context per page of a compressed cache.
constexpr std::int64_t compressed_rows_per_page(Layer layer) { return 256 / compress_ratio(layer); }

struct WorkloadShape {
  Model model = Model::flash;
  Layer layer = Layer::csa;
  Phase phase = Phase::decode;
  std::int64_t batch = 1;       ///< requests
  std::int64_t tokens = 1;      ///< queries per request, the last of its context
  std::int64_t context = 4096;  ///< tokens of a request after this step
  std::int64_t tensor_parallel = 1;
  std::uint64_t seed = 1;
  double overlap = 0;  ///< share of top-k entries that neighbouring queries of a request have in common
  RowForm rows = RowForm::list;
  Store store = Store::pages;  ///< flat: one bf16 workspace, as engines gather it for prefill; decode reads pages
  Fp8Encoding window_encoding = Fp8Encoding::ocp;  ///< gfx942 engines write window rows as fnuz
};

/// Makes a workload's tensors. Layouts:
///
/// * `pages`: `main` is the window cache (64 rows per page), `extra` the compressed cache (64 or 2 rows per page), both
///   fp8_ds_mla with pages padded to a multiple of 576 bytes and block tables shuffled over all requests. Window pages
///   that lie before every window of a request are not kept (their table entry is -1), as in an engine.
/// * `flat`: `kv` [B * M, 512] holds per request its compressed rows, then its last tokens + min(prefix, 127) rows.
///   With lists there is one segment with compressed entries first; with ranges there are two over the same rows.
///
/// Rows, queries and sinks are N(0, 1), so that logits have a spread of 1 as well.
/// Throws Error naming the option for shapes that do not exist.
///
/// `progress(step, total)` is called as rows are made.
TensorSet make_workload(const WorkloadShape& shape,
                        const std::function<void(std::int64_t step, std::int64_t total)>& progress = {});

}  // namespace raggedmla::io
