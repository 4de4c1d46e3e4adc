// The backends of the row-list operators. api.cpp checks the call, makes the list and picks one.
#pragma once

#include <cstddef>

#include "raggedmla/row_lists.hpp"
#include "row_lists/problem.hpp"

namespace raggedmla {

using WindowList = RangeList<WindowRange>;
using CompressedList = RangeList<CompressedRange>;

// `emit` is defined in every backend for DenseList, TranslatedList, WindowList, CompressedList and CombinedList,
// `emit_ranges` for WindowRange and CompressedRange.

namespace reference {
template <class List>
void emit(const List& list, const ListTarget& target);
template <class Range>
void emit_ranges(const Range& range, std::int64_t queries, const RangeTarget& target);
void copy_to_graph_buffers(const GraphCopy& copy);
}  // namespace reference

namespace cpu {
template <class List>
void emit(const List& list, const ListTarget& target);
template <class Range>
void emit_ranges(const Range& range, std::int64_t queries, const RangeTarget& target);
void copy_to_graph_buffers(const GraphCopy& copy);
}  // namespace cpu

namespace gpu {
/// Workspace of `emit`: the counter area, for ragged lists whose lengths take some work to find.
template <class List>
std::size_t emit_workspace_bytes(const List& list, const ListTarget& target);
template <class List>
void emit(const List& list, const ListTarget& target, int device, const Workspace& workspace, Stream stream);
template <class Range>
void emit_ranges(const Range& range, std::int64_t queries, const RangeTarget& target, int device, Stream stream);
void copy_to_graph_buffers(const GraphCopy& copy, int device, Stream stream);
}  // namespace gpu

/// Who computes a call: the device's backend, or the definition (CPU tensors only), which tests compare with.
enum class ListBackend : std::uint8_t { automatic, reference };

// The public operators, with a choice of backend.
void build_ragged(const BuildRagged& arguments, ListBackend backend, const Workspace& workspace, Stream stream);
void translate_topk(const TranslateTopk& arguments, ListBackend backend, const Workspace& workspace, Stream stream);
void window_rows(const WindowRows& arguments, ListBackend backend, const Workspace& workspace, Stream stream);
void compressed_rows(const CompressedRows& arguments, ListBackend backend, const Workspace& workspace, Stream stream);
void combine(const Combine& arguments, ListBackend backend, const Workspace& workspace, Stream stream);
void copy_to_graph_buffers(const CopyToGraphBuffers& arguments, ListBackend backend, Stream stream);

}  // namespace raggedmla
