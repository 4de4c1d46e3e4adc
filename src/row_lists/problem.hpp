// The row-list operators as backends see them: checked, flattened, small enough to be kernel parameters.
#pragma once

#include <cstdint>

#include "base/array_view.hpp"
#include "base/host_device.hpp"
#include "kv_cache/row_store.hpp"

namespace raggedmla {

/// A query's place in its request. request < 0 or position < 0: the query has no rows.
struct QueryPlace {
  std::int64_t request = -1;
  std::int64_t position = -1;
  std::int64_t start = 0;  // position of the request's first query in this step
  std::int64_t sequence_length = 0;
};

/// QueryLayout, flattened: either query_start + sequence_lengths, or positions + request_of_query.
struct QueryPlaces {
  IntArray query_start, sequence_lengths;
  std::int64_t requests = 0;
  IntArray positions, request_of_query;

  RAGGEDMLA_HOST_DEVICE QueryPlace operator()(std::int64_t t) const {
    if (positions) return {request_of_query(t), positions(t), positions(t), positions(t) + 1};
    std::int64_t low = 0, high = requests;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (query_start(middle + 1) <= t) low = middle + 1;
      else high = middle;
    }
    if (low >= requests || t < query_start(low) || t >= query_start(low + 1)) return {};
    const std::int64_t length = sequence_lengths(low);
    const std::int64_t start = length - (query_start(low + 1) - query_start(low));
    return {low, start + (t - query_start(low)), start, length};
  }
};

/// Where a list goes. `indptr` set: ragged; `first` set: ranges; otherwise dense.
struct ListTarget {
  MutableIntArray indices;  // dense: [T, width]; ragged: [capacity]
  std::int64_t width = 0;   // bound of a row's length
  MutableIntArray indptr;   // [T + 1]
  MutableIntArray lengths;  // [T], optional
  MutableIntArray first, count;
};

}  // namespace raggedmla
