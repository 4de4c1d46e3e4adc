// Attention on the CPU at the model's shapes: small enough for a minute or two on a few cores.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace raggedmla::cli {

struct CpuBenchRow {
  std::string suite, name;
  std::int64_t queries = 0, heads = 0;
  double rows_per_query = 0;
  double seconds = 0;  ///< median of single calls
  int calls = 0;
  double gflop_per_second = 0, gb_per_second = 0;
};

std::vector<std::string> cpu_bench_suites();

/// Calls `report` after every case of a suite. A case takes about `seconds_per_case`, at least three calls.
void run_cpu_bench(const std::string& suite, double seconds_per_case,
                   const std::function<void(const CpuBenchRow&)>& report);

}  // namespace raggedmla::cli
