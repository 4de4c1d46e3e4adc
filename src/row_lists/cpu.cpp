// Row lists on the CPU, threads through OpenMP: lengths in parallel, one scan, then the entries in parallel.
#include <algorithm>
#include <cstring>

#include "row_lists/backends.hpp"

namespace raggedmla::cpu {

namespace {

/// Below this many entries a loop is over before the threads have started.
constexpr std::int64_t entries_worth_threads = 1 << 14;

template <class List>
std::int64_t count_entries(const List& list, std::int64_t t) {
  const auto row = list.row(t);
  if constexpr (!List::drops_holes) return row.length;
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < row.length; ++j) count += list.entry(row, j) >= 0;
  return count;
}

/// Writes the row's entries from `destination` on and returns how many there are.
template <class List>
std::int64_t emit_row(const List& list, std::int64_t t, std::int32_t* destination, std::int64_t step) {
  const auto row = list.row(t);
  if constexpr (requires { list.packed(); }) {
    if (row.length > 0 && list.packed() && step == 1) {
      const std::int32_t* source = static_cast<const std::int32_t*>(list.indices.data) + row.begin;
      std::transform(source, source + row.length, destination,
                     [&](std::int32_t entry) { return list.limited_word(entry); });
      return row.length;
    }
  }
  std::int64_t length = 0;
  for (std::int64_t j = 0; j < row.length; ++j) {
    const std::int32_t entry = list.entry(row, j);
    if (List::drops_holes && entry < 0) continue;
    destination[length++ * step] = entry;
  }
  return length;
}

}  // namespace

template <class List>
void emit(const List& list, const ListTarget& target) {
  const bool threads = list.queries * std::max<std::int64_t>(list.width, 1) >= entries_worth_threads;
  if (target.ragged()) {
    // indptr itself holds the lengths until they are summed up: no scratch.
    target.indptr.set(0, 0);
#pragma omp parallel for schedule(static) if (threads)
    for (std::int64_t t = 0; t < list.queries; ++t) target.indptr.set(t + 1, count_entries(list, t));
    for (std::int64_t t = 0; t < list.queries; ++t) target.indptr.set(t + 1, target.indptr(t) + target.indptr(t + 1));
  }
#pragma omp parallel for schedule(static) if (threads)
  for (std::int64_t t = 0; t < list.queries; ++t) {
    const std::int64_t step = target.step();
    // A list without columns may have no memory; nothing is written there then.
    std::int32_t* destination = target.indices ? static_cast<std::int32_t*>(target.indices.data) +
                                                     target.offset(t, target.ragged() ? target.indptr(t) : 0)
                                               : nullptr;
    const std::int64_t length = emit_row(list, t, destination, step);
    if (target.lengths) target.lengths.set(t, length);
    if (target.ragged()) continue;
    for (std::int64_t j = length; j < target.width; ++j) destination[j * step] = -1;
  }
}

template void emit(const DenseList&, const ListTarget&);
template void emit(const TranslatedList&, const ListTarget&);
template void emit(const WindowList&, const ListTarget&);
template void emit(const CompressedList&, const ListTarget&);
template void emit(const CombinedList&, const ListTarget&);

template <class Range>
void emit_ranges(const Range& range, std::int64_t queries, const RangeTarget& target) {
#pragma omp parallel for schedule(static) if (queries >= entries_worth_threads)
  for (std::int64_t t = 0; t < queries; ++t) {
    const RowRange rows = range(t);
    target.first.set(t, rows.first);
    target.count.set(t, rows.count);
  }
}

template void emit_ranges(const WindowRange&, std::int64_t, const RangeTarget&);
template void emit_ranges(const CompressedRange&, std::int64_t, const RangeTarget&);

void copy_to_graph_buffers(const GraphCopy& copy) {
  const std::int64_t all = copy.covered();
  const std::size_t bytes = copy.wide ? sizeof(std::int64_t) : sizeof(std::int32_t);
  if (all > 0) std::memcpy(copy.destination, copy.source, static_cast<std::size_t>(all) * bytes);
  for (std::int64_t t = 0; t <= copy.destination_queries; ++t) {
    copy.destination_indptr.set(t, copy.offset_of(t, all));
  }
}

}  // namespace raggedmla::cpu
