#include <fmt/format.h>
#include <algorithm>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/bfloat16.hpp"
#include "raggedmla/raggedmla.hpp"
#include "verify.hpp"

namespace raggedmla::cli {
namespace {

/// Groups with a smaller magnitude are encoded differently by writers with different floors: 448 * 2^-14.
constexpr float floor_magnitude = 0.02734375f;

/// The pages that quantize_rows makes of all rows, on the CPU. They start as a copy of the expected ones, so that only
/// bytes that are written can differ.
io::TensorSet quantise(io::TensorSet& tensors, const PagedKv& expected, const TensorView& rows, ScaleFloor floor,
                       Device device) {
  io::TensorSet inputs("quantize_rows");
  const std::int64_t count = rows.shape[0];
  std::memcpy(inputs.add("rows", DataType::bf16, {count, rows.shape[1]}).data, rows.data, io::packed_bytes(rows));
  const TensorView slots = inputs.add("slots", DataType::i64, {count});
  std::iota(static_cast<std::int64_t*>(slots.data), static_cast<std::int64_t*>(slots.data) + count, std::int64_t{0});
  const auto run = [&](io::TensorSet& set, const TensorView& pages) {
    quantize_rows({set.get("rows"), set.get("slots"), {pages, expected.rows_per_page, expected.encoding}, floor});
    host::synchronize(device);
  };
  io::TensorSet result(tensors.name());
  const TensorView pages = result.add("pages", DataType::u8, {expected.pages.shape[0], expected.pages.shape[1]});
  std::memset(pages.data, 0, io::packed_bytes(pages));
  if (device.type == DeviceType::cpu) {
    run(inputs, pages);
  } else {
    io::TensorSet there = inputs.copy_to(device), pages_there = result.copy_to(device);
    run(there, pages_there.get("pages"));
    pages_there.download_to(result);
  }
  return result;
}

/// Groups of 64 channels whose bytes or scale differ, and rope parts that differ; groups below the floor are left out.
std::int64_t count_differences(const PagedKv& expected, const TensorView& actual, const TensorView& rows,
                               float smallest_magnitude) {
  const auto* values = static_cast<const std::uint16_t*>(rows.data);
  std::int64_t differences = 0;
  for (std::int64_t slot = 0; slot < rows.shape[0]; ++slot) {
    const std::int64_t page = slot / expected.rows_per_page * expected.pages.stride[0];
    const std::int64_t in_page = slot % expected.rows_per_page;
    const std::int64_t row = page + in_page * v4_row.data_bytes;
    const std::int64_t scales = page + expected.rows_per_page * v4_row.data_bytes + in_page * v4_row.scale_bytes;
    const auto differ = [&](std::int64_t offset, std::size_t bytes) {
      return std::memcmp(static_cast<const std::uint8_t*>(expected.pages.data) + offset,
                         static_cast<const std::uint8_t*>(actual.data) + offset, bytes) != 0;
    };
    for (int group = 0; group < v4_row.nope_width / v4_row.group_width; ++group) {
      float magnitude = 0;
      for (int c = 0; c < v4_row.group_width; ++c) {
        magnitude = std::fmax(
            magnitude, std::fabs(float_from_bf16(values[slot * v4_row.query_width + group * v4_row.group_width + c])));
      }
      if (magnitude <= smallest_magnitude) continue;
      differences += differ(row + group * v4_row.group_width, v4_row.group_width) || differ(scales + group, 1) ? 1 : 0;
    }
    differences += differ(row + v4_row.nope_width, 2 * static_cast<std::size_t>(v4_row.rope_width)) ? 1 : 0;
  }
  return differences;
}

Verdict verify_pages(io::TensorSet& tensors, const PagedKv& expected, const std::string& prefix, const Target& target) {
  const TensorView rows = tensors.get(prefix + "rows_bf16");
  if (rows.rank != 2 || rows.dtype != DataType::bf16 || rows.shape[1] != v4_row.query_width ||
      rows.shape[0] > expected.pages.shape[0] * expected.rows_per_page) {
    throw Error(fmt::format("{}: {}rows_bf16 does not fit {}pages, expected bf16 [pages * rows_per_page, {}]",
                            tensors.name(), prefix, prefix, v4_row.query_width));
  }
  // The floor that the stored bytes were made with must give every byte; the other one all above its reach.
  std::int64_t differences[2];
  for (const ScaleFloor floor : {ScaleFloor::amax, ScaleFloor::quotient}) {
    io::TensorSet made = quantise(tensors, expected, rows, floor, target.device);
    differences[floor == ScaleFloor::quotient] =
        count_differences(expected, made.get("pages"), rows, floor == ScaleFloor::amax ? floor_magnitude : -1.0f);
  }
  Verdict verdict;
  verdict.what = fmt::format("{}pages bytes", prefix);
  verdict.passed = differences[0] == 0 && differences[1] == 0;
  if (!verdict.passed) {
    verdict.note =
        fmt::format("{} groups differ with the amax floor, {} with the quotient floor", differences[0], differences[1]);
  }
  return verdict;
}

}  // namespace

std::vector<Verdict> verify_workload(io::TensorSet& tensors, const Target& target) {
  io::AttentionResult expected{tensors.get("out"), tensors.find("lse"), tensors.find("max_logits")};
  AttentionRun run(tensors, target);
  run.run();
  const auto require_shape = [&](const char* name, const OptionalTensor& want, const TensorView& have) {
    if (!want) return;
    const bool same = want->rank == have.rank &&
                      std::equal(want->shape.begin(), want->shape.begin() + want->rank, have.shape.begin());
    if (!same || (want->dtype != DataType::f32 && want->dtype != DataType::bf16)) {
      throw Error(fmt::format("{}: {} has not the shape or type of the call's result", tensors.name(), name));
    }
  };
  const io::AttentionResult actual = run.result();
  require_shape("out", expected.out, actual.out);
  require_shape("lse", expected.lse, *actual.lse);
  require_shape("max_logits", expected.max_logits, *actual.max_logits);

  Verdict verdict;
  verdict.what = "attention";
  verdict.comparison.emplace().add(actual, expected);
  verdict.passed = verdict.comparison->within({});
  std::vector<Verdict> verdicts = {verdict};
  const io::AttentionCall& call = run.host_call();
  for (std::size_t i = 0; i < call.segments.size(); ++i) {
    const auto* pages = std::get_if<PagedKv>(&call.segments[i].kv);
    const std::string& prefix = call.names[i].prefix;
    if (pages != nullptr && pages->pages.dtype == DataType::u8 && pages->pages.rank == 2 &&
        tensors.contains(prefix + "rows_bf16")) {
      verdicts.push_back(verify_pages(tensors, *pages, prefix, target));
    }
  }
  return verdicts;
}

}  // namespace raggedmla::cli
