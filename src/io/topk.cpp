#include "io/topk.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace raggedmla::io {

TopkLists::TopkLists(std::int64_t capacity, std::int64_t k, double overlap, RandomStream random)
    : k_(k), overlap_(overlap), random_(random), marks_(static_cast<std::size_t>(capacity), Mark::free) {}

std::span<const std::int64_t> TopkLists::next(std::int64_t visible) {
  if (visible <= k_) {
    list_.resize(static_cast<std::size_t>(visible));
    std::iota(list_.begin(), list_.end(), std::int64_t{0});
    for (const std::int64_t entry : list_) marks_[static_cast<std::size_t>(entry)] = Mark::listed;
  } else {
    replace_some(visible);
  }
  return list_;
}

void TopkLists::replace_some(std::int64_t visible) {
  // Entries that stay change places with the tail, so that those which leave are a random choice.
  const auto size = static_cast<std::int64_t>(list_.size());
  const auto keep = static_cast<std::int64_t>(std::llround(overlap_ * static_cast<double>(size)));
  for (std::int64_t i = 0; i < keep; ++i) {
    std::swap(list_[static_cast<std::size_t>(i)], list_[static_cast<std::size_t>(i + random_.below(size - i))]);
  }
  const std::vector<std::int64_t> dropped(list_.begin() + keep, list_.end());
  list_.resize(static_cast<std::size_t>(keep));
  // A dropped entry does not come back at once, unless too few others are there.
  const bool enough = visible - size >= k_ - keep;
  for (const std::int64_t entry : dropped)
    marks_[static_cast<std::size_t>(entry)] = enough ? Mark::dropped : Mark::free;
  while (static_cast<std::int64_t>(list_.size()) < k_) {
    const std::int64_t entry = random_.below(visible);
    Mark& mark = marks_[static_cast<std::size_t>(entry)];
    if (mark != Mark::free) continue;
    mark = Mark::listed;
    list_.push_back(entry);
  }
  for (const std::int64_t entry : dropped) {
    Mark& mark = marks_[static_cast<std::size_t>(entry)];
    if (mark == Mark::dropped) mark = Mark::free;
  }
}

}  // namespace raggedmla::io
