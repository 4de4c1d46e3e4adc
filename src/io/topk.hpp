// Random top-k lists whose neighbours share a given part, as the lists of neighbouring queries do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/random.hpp"

namespace raggedmla::io {

/// The lists of one request's queries, in order.
class TopkLists {
 public:
  /// `capacity`: entries that can ever be visible.
  TopkLists(std::int64_t capacity, std::int64_t k, double overlap, RandomStream random);

  /// The next query's list of min(k, visible) distinct entries of [0, visible); all of them if they fit, in order.
  /// `visible` does not shrink from query to query.
  std::span<const std::int64_t> next(std::int64_t visible);

 private:
  void replace_some(std::int64_t visible);

  enum class Mark : std::uint8_t { free, listed, dropped };
  std::int64_t k_;
  double overlap_;
  RandomStream random_;
  std::vector<Mark> marks_;
  std::vector<std::int64_t> list_;
};

}  // namespace raggedmla::io
