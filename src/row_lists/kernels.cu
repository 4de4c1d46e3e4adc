// Row lists on the GPU.
#include "gpu/runtime.hpp"
#include "row_lists/backends.hpp"

namespace raggedmla::gpu {

template <class List>
std::size_t emit_workspace_bytes(const List&, const ListTarget&) {
  return 0;
}

template <class List>
void emit(const List&, const ListTarget&, int, const Workspace&, Stream) {
  throw DeviceError("row lists: not on the GPU yet");
}

#define INSTANTIATE(List)                                                   \
  template std::size_t emit_workspace_bytes(const List&, const ListTarget&); \
  template void emit(const List&, const ListTarget&, int, const Workspace&, Stream);
INSTANTIATE(DenseList)
INSTANTIATE(TranslatedList)
INSTANTIATE(WindowList)
INSTANTIATE(CompressedList)
INSTANTIATE(CombinedList)

template <class Range>
void emit_ranges(const Range&, std::int64_t, const RangeTarget&, int, Stream) {
  throw DeviceError("row lists: not on the GPU yet");
}
template void emit_ranges(const WindowRange&, std::int64_t, const RangeTarget&, int, Stream);
template void emit_ranges(const CompressedRange&, std::int64_t, const RangeTarget&, int, Stream);

void copy_to_graph_buffers(const GraphCopy&, int, Stream) { throw DeviceError("row lists: not on the GPU yet"); }

}  // namespace raggedmla::gpu
