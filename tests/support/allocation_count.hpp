// Counts allocations of the whole test program, to show that operators make none.
#pragma once

namespace raggedmla::test {

/// Calls of operator new so far, on all threads.
long allocation_count();

}  // namespace raggedmla::test
