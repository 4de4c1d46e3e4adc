// A progress bar for work over a second, when somebody is watching.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace raggedmla::cli {

/// Drawn on stderr if that is a terminal, from one second after the start on; removed at the end.
class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t steps = 1);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  std::int64_t total_, done_ = 0;
  bool terminal_, drawn_ = false;
  Clock::time_point start_, last_;
};

}  // namespace raggedmla::cli
