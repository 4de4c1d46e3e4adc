// Timing of operator calls on a GPU: graph replays over rotating buffers, the card's ceilings, rows of the result
// table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/device_memory.hpp"
#include "matrix_rate.hpp"
#include "raggedmla/raggedmla.hpp"

namespace raggedmla::bench {

struct Options {
  Device device;
  Schedule::Kernel kernel = Schedule::Kernel::automatic;
  bool quick = false;               ///< fewer shapes
  std::vector<std::string> suites;  ///< empty = all
};

/// Measured in the same run as everything else.
struct Ceilings {
  double copy_bytes_per_second = 0;  ///< read + written
  MatrixRate matrix;
  double launch_host_microseconds = 0;  ///< of launching a kernel that does nothing: the floor of a call's host cost
  double node_microseconds = 0;         ///< of such a kernel in a replayed graph
};

/// One line of a result table. Zero = does not apply.
struct Result {
  std::string suite, shape, variant;
  double microseconds = 0;
  double matrix_floor = 0, gather_floor = 0, copy_floor = 0;  ///< microseconds each ceiling alone would take
  double bytes = 0, flops = 0;
  double host_microseconds = 0;
  double gap_microseconds = 0;
  double ratio = 0;  ///< against the variant named in `note`
  std::string note;

  double floor() const;
  double efficiency() const { return floor() > 0 && microseconds > 0 ? floor() / microseconds : 0; }
};

class Bench {
 public:
  explicit Bench(const Options& options);

  /// Microseconds of one `call(i, stream)`, i = 0, 1, ... naming one of `sets` rotating buffer sets: a graph of several
  /// calls is replayed, the median over replays divided by the calls in it.
  double time_graph(int sets, const std::function<void(int, Stream)>& call) const;
  /// Microseconds of host time that one eager call takes, with the device kept busy meanwhile.
  double time_host(const std::function<void(Stream)>& call) const;
  /// Bytes per second of gathering rows by dense i32 lists `[tokens, length]`.
  double gather_rate(const void* rows, std::int64_t pitch, std::int64_t row_bytes, const std::int32_t* indices,
                     std::int64_t tokens, std::int64_t length) const;

  host::Memory allocate(std::size_t bytes) const { return host::Memory(options.device, bytes); }
  Workspace workspace(std::vector<host::Memory>& owner, std::size_t bytes) const;

  Options options;
  Ceilings ceilings;
  host::OwnedStream stream;
  std::vector<Result> results;
};

// The suites; each appends to bench.results.
void run_lists(Bench& bench);
void run_prefill(Bench& bench);
void run_decode(Bench& bench);
void run_seeds(Bench& bench);

/// Measures the ceilings and runs the suites that the options name. Throws Error for an unknown suite.
void run_suites(Bench& bench);

/// A table for people, and one JSON document.
std::string table(const Bench& bench);
std::string json(const Bench& bench);

}  // namespace raggedmla::bench
