#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace raggedmla::cli {
namespace {

/// "12", "1.3e-05", "850 us", and "-" where a number is absent; not "40 decode steps".
bool is_number(const std::string& cell) {
  const std::size_t digits = cell.find_first_not_of("0123456789.e+-");
  const bool has_unit = digits != std::string::npos && digits > 0 && cell[digits] == ' ' && cell.size() - digits <= 3;
  return !cell.empty() && (digits == std::string::npos || has_unit);
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      // A heading stands where the cells below it do.
      const std::string& cell = rows_[r][i];
      const bool right = is_number(r == 0 && rows_.size() > 1 ? rows_[1][i] : cell);
      line += fmt::format("{}{}", i == 0 ? "" : "  ",
                          right ? fmt::format("{:>{}}", cell, widths[i]) : fmt::format("{:<{}}", cell, widths[i]));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string error_text(std::optional<double> error) {
  if (!error) return "-";
  return *error == 0 ? "0" : fmt::format("{:.1e}", *error);
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string bytes_text(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.4g} kB", bytes * 1e-3);
  if (bytes < 1e9) return fmt::format("{:.4g} MB", bytes * 1e-6);
  return fmt::format("{:.4g} GB", bytes * 1e-9);
}

}  // namespace raggedmla::cli
