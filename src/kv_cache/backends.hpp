// The backends of the cache operators, one declaration each. api.cpp checks the call and picks one; no backend knows
// another.
#pragma once

#include "kv_cache/problem.hpp"
#include "raggedmla/tensor.hpp"

namespace raggedmla {

namespace reference {
void quantize_rows(const QuantizeProblem& problem);
void dequantize_rows(const DequantizeProblem& problem);
void gather_rows(const GatherProblem& problem);
}  // namespace reference

namespace cpu {
void quantize_rows(const QuantizeProblem& problem);
void dequantize_rows(const DequantizeProblem& problem);
void gather_rows(const GatherProblem& problem);
}  // namespace cpu

namespace gpu {
void quantize_rows(const QuantizeProblem& problem, int device, Stream stream);
void dequantize_rows(const DequantizeProblem& problem, int device, Stream stream);
void gather_rows(const GatherProblem& problem, int device, Stream stream);
void unpack_rows(const UnpackProblem& problem, int device, Stream stream);
}  // namespace gpu

}  // namespace raggedmla
