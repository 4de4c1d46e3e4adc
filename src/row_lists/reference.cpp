// The definition of every row-list operator, in plain loops.
#include "row_lists/backends.hpp"

namespace raggedmla::reference {

template <class List>
void emit(const List& list, const ListTarget& target) {
  if (target.ragged()) target.indptr.set(0, 0);
  std::int64_t begin = 0;
  for (std::int64_t t = 0; t < list.queries; ++t) {
    const auto row = list.row(t);
    const std::int64_t offset = target.offset(t, begin);
    std::int64_t length = 0;
    for (std::int64_t j = 0; j < row.length; ++j) {
      const std::int32_t entry = list.entry(row, j);
      if (List::drops_holes && entry < 0) continue;
      target.indices.store_offset(offset + length++ * target.step(), entry);
    }
    if (target.lengths) target.lengths.set(t, length);
    if (target.ragged()) {
      target.indptr.set(t + 1, begin += length);
    } else {
      while (length < target.width) target.indices.store_offset(offset + length++ * target.step(), -1);
    }
  }
}

template void emit(const DenseList&, const ListTarget&);
template void emit(const TranslatedList&, const ListTarget&);
template void emit(const WindowList&, const ListTarget&);
template void emit(const CompressedList&, const ListTarget&);
template void emit(const CombinedList&, const ListTarget&);

template <class Range>
void emit_ranges(const Range& range, std::int64_t queries, const RangeTarget& target) {
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
  const IntArray source{copy.source, 1, 0, copy.wide};
  const MutableIntArray destination{copy.destination, 1, 0, copy.wide};
  for (std::int64_t i = 0; i < all; ++i) destination.set(i, source(i));
  for (std::int64_t t = 0; t <= copy.destination_queries; ++t) {
    copy.destination_indptr.set(t, copy.offset_of(t, all));
  }
}

}  // namespace raggedmla::reference
