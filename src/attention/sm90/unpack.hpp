// Unpacks the fp8 rows that a call reads often. See unpacked.hpp.
#pragma once

#include "attention/unpacked.hpp"

namespace raggedmla::gpu::sm90 {

/// Enqueues the unpacking of `problem` as `plan` has it; `unpacked` is the call that reads the result.
void unpack(const AttentionProblem& problem, const UnpackPlan& plan, const AttentionProblem& unpacked, int device,
            Stream stream);

/// Loads the kernel onto the current device.
void preload_unpack();

}  // namespace raggedmla::gpu::sm90
