// A comparison as JSON, alike in every report.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/comparison.hpp"

namespace raggedmla::cli {

/// JSON has no infinity: an error that is not finite is the text "infinite", one that was not measured is null.
inline nlohmann::ordered_json error_json(std::optional<double> error) {
  if (!error) return nullptr;
  return std::isfinite(*error) ? nlohmann::ordered_json(*error) : nlohmann::ordered_json("infinite");
}

inline nlohmann::ordered_json errors_json(const io::Comparison& comparison) {
  return {{"out", error_json(comparison.out())},     {"worst_row", error_json(comparison.row())},
          {"worst_query", comparison.worst_token()}, {"worst_head", comparison.worst_head()},
          {"lse", error_json(comparison.lse())},     {"max_logits", error_json(comparison.max_logits())}};
}

}  // namespace raggedmla::cli
