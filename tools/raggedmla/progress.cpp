#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace raggedmla::cli {

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::advance(std::int64_t steps) {
  done_ += steps;
  if (!terminal_) return;
  const auto now = Clock::now();
  if (now - start_ < std::chrono::seconds(1) || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr std::int64_t width = 30;
  const double part = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1.0;
  const auto filled = static_cast<std::size_t>(static_cast<double>(width) * part);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "\r\x1b[K{} [{:<{}}] {:3.0f} %, {:.0f} s left", what_, std::string(filled, '#'), width, 100 * part,
             part > 0 ? elapsed * (1 - part) / part : 0.0);
  std::fflush(stderr);
}

}  // namespace raggedmla::cli
