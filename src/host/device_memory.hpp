// Device memory, copies, streams, graphs and timing for the command line and the tests.
//
// Works in every build: without a GPU backend there are no GPUs and only CPU memory can be had.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "raggedmla/tensor.hpp"

namespace raggedmla::host {

/// The GPU type of this build (cuda, hip), or cpu if it has no GPU backend.
DeviceType gpu_type();

/// GPUs that can be used; 0 without a driver.
int gpu_count();

/// Memory on a device, freed with the object. CPU memory is aligned to 256 bytes.
class Memory {
 public:
  Memory() = default;
  Memory(Device device, std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  void upload(const void* source, std::size_t bytes, std::size_t offset = 0);
  void download(void* target, std::size_t bytes, std::size_t offset = 0) const;
  void fill(std::uint8_t byte);

 private:
  Device device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Waits until the device has done everything.
void synchronize(Device device);

/// A stream of a device (a no-op on the CPU).
class OwnedStream {
 public:
  explicit OwnedStream(Device device);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream get() const { return stream_; }
  void synchronize() const;

 private:
  Device device_;
  Stream stream_;
};

/// What a captured graph holds, by kind of node.
struct GraphNodes {
  int kernels = 0;
  int others = 0;  ///< copies, memsets, memory nodes, host calls: an operator must have none
};

/// A captured sequence of operator calls. GPU only.
class Graph {
 public:
  /// Captures what `enqueue` puts on the stream, in the mode that refuses unsafe calls.
  Graph(Device device, const std::function<void(Stream)>& enqueue);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  GraphNodes nodes() const;
  void replay(const OwnedStream& stream) const;

 private:
  Device device_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

/// Seconds of each of `repetitions` runs of `work`: device events on a GPU, a steady clock on the CPU.
std::vector<double> time_runs(const OwnedStream& stream, Device device, int repetitions,
                              const std::function<void(int)>& work);

double median(std::vector<double> values);

}  // namespace raggedmla::host
