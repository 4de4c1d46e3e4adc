// A key/value source of the public API, checked and turned into what kernels take.
#pragma once

#include "base/checks.hpp"
#include "kv_cache/row_store.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla {

/// Checks flat rows or pages; messages name `<argument>.rows` or `<argument>.pages`.
RowStore flatten_source(Checker& checker, const char* argument, const KvSource& source);

/// The same for pages only.
RowStore flatten_pages(Checker& checker, const char* argument, const PagedKv& source);

}  // namespace raggedmla
