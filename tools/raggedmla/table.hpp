// Results as aligned text.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace raggedmla::cli {

/// A table that is printed once it is complete. Cells that are numbers stand to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// An error as "1.3e-03", or "-" where nothing was compared.
std::string error_text(std::optional<double> error);
/// "1.3 ms", "850 us", "2.1 s".
std::string seconds_text(double seconds);
/// Bytes as "37.4 MB".
std::string bytes_text(double bytes);

}  // namespace raggedmla::cli
