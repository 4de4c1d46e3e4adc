// A comparison as JSON, alike in every report.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/comparison.hpp"

namespace raggedmla::cli {

/// Null where nothing was compared, and where an error is infinite (JSON has no word for that).
inline nlohmann::ordered_json error_json(std::optional<double> error) {
  return error && std::isfinite(*error) ? nlohmann::ordered_json(*error) : nlohmann::ordered_json(nullptr);
}

inline void add_errors(nlohmann::ordered_json& report, const io::Comparison& comparison) {
  report["out_error"] = error_json(comparison.out());
  report["worst_row_error"] = error_json(comparison.row());
  report["worst_query"] = comparison.worst_token();
  report["worst_head"] = comparison.worst_head();
  report["lse_error"] = error_json(comparison.lse());
  report["max_logits_error"] = error_json(comparison.max_logits());
}

}  // namespace raggedmla::cli
