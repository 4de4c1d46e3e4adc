#include "host/device_memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "raggedmla/error.hpp"

#if defined(RAGGEDMLA_WITH_CUDA) || defined(RAGGEDMLA_WITH_HIP)
#include "gpu/runtime.hpp"
#define RAGGEDMLA_HOST_HAS_GPU 1
#if RAGGEDMLA_GPU_IS_HIP
#define RT(name) hip##name
#else
#define RT(name) cuda##name
#endif
#else
#define RAGGEDMLA_HOST_HAS_GPU 0
#endif

namespace raggedmla::host {

namespace {

constexpr std::align_val_t alignment{256};

#if RAGGEDMLA_HOST_HAS_GPU
void check_type(Device device) {
  if (device.type != gpu::device_type) throw DeviceError("this build has no backend for that kind of device");
}
#else
[[noreturn]] void no_gpu() { throw DeviceError("this build has no GPU backend"); }
#endif

}  // namespace

#if RAGGEDMLA_HOST_HAS_GPU

DeviceType gpu_type() { return gpu::device_type; }

int gpu_count() {
  int count = 0;
  return RT(GetDeviceCount)(&count) == gpu::success ? count : (static_cast<void>(RT(GetLastError)()), 0);
}

Memory::Memory(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes == 0) return;
  if (device.type == DeviceType::cpu) {
    data_ = ::operator new(bytes, alignment);
    return;
  }
  check_type(device);
  const gpu::DeviceScope scope(device.index);
  RAGGEDMLA_GPU_CHECK(RT(Malloc)(&data_, bytes));
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (device_.type == DeviceType::cpu) {
    ::operator delete(data_, alignment);
  } else {
    static_cast<void>(RT(Free)(data_));
  }
}

void Memory::upload(const void* source, std::size_t bytes, std::size_t offset) {
  if (bytes == 0) return;
  char* target = static_cast<char*>(data_) + offset;
  if (device_.type == DeviceType::cpu) {
    std::memcpy(target, source, bytes);
    return;
  }
  const gpu::DeviceScope scope(device_.index);
  RAGGEDMLA_GPU_CHECK(RT(Memcpy)(target, source, bytes, RT(MemcpyHostToDevice)));
  // A copy from pageable memory may still be on its way, and OwnedStream does not wait for the default stream.
  RAGGEDMLA_GPU_CHECK(RT(StreamSynchronize)(nullptr));
}

void Memory::download(void* target, std::size_t bytes, std::size_t offset) const {
  if (bytes == 0) return;
  const char* source = static_cast<const char*>(data_) + offset;
  if (device_.type == DeviceType::cpu) {
    std::memcpy(target, source, bytes);
    return;
  }
  const gpu::DeviceScope scope(device_.index);
  RAGGEDMLA_GPU_CHECK(RT(Memcpy)(target, source, bytes, RT(MemcpyDeviceToHost)));
}

void Memory::fill(std::uint8_t byte) {
  if (bytes_ == 0) return;
  if (device_.type == DeviceType::cpu) {
    std::memset(data_, byte, bytes_);
    return;
  }
  const gpu::DeviceScope scope(device_.index);
  RAGGEDMLA_GPU_CHECK(RT(Memset)(data_, byte, bytes_));
  RAGGEDMLA_GPU_CHECK(RT(StreamSynchronize)(nullptr));  // as in upload
}

void synchronize(Device device) {
  if (device.type == DeviceType::cpu) return;
  const gpu::DeviceScope scope(device.index);
  RAGGEDMLA_GPU_CHECK(RT(DeviceSynchronize)());
}

OwnedStream::OwnedStream(Device device) : device_(device) {
  if (device.type == DeviceType::cpu) return;
  const gpu::DeviceScope scope(device.index);
  gpu::NativeStream stream{};
  RAGGEDMLA_GPU_CHECK(RT(StreamCreateWithFlags)(&stream, RT(StreamNonBlocking)));
  stream_.handle = stream;
}

OwnedStream::~OwnedStream() {
  if (stream_.handle != nullptr) static_cast<void>(RT(StreamDestroy)(gpu::native(stream_)));
}

void OwnedStream::synchronize() const {
  if (stream_.handle != nullptr) RAGGEDMLA_GPU_CHECK(RT(StreamSynchronize)(gpu::native(stream_)));
}

Graph::Graph(Device device, const std::function<void(Stream)>& enqueue) : device_(device) {
  check_type(device);
  const gpu::DeviceScope scope(device.index);
  const OwnedStream stream(device);
  const gpu::NativeStream native = gpu::native(stream.get());
  RT(Graph_t) graph{};
  RAGGEDMLA_GPU_CHECK(RT(StreamBeginCapture)(native, RT(StreamCaptureModeGlobal)));
  try {
    enqueue(stream.get());
  } catch (...) {
    static_cast<void>(RT(StreamEndCapture)(native, &graph));
    throw;
  }
  RAGGEDMLA_GPU_CHECK(RT(StreamEndCapture)(native, &graph));
  graph_ = graph;
  RT(GraphExec_t) executable{};
#if RAGGEDMLA_GPU_IS_HIP
  RAGGEDMLA_GPU_CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
#else
  RAGGEDMLA_GPU_CHECK(cudaGraphInstantiate(&executable, graph, 0));
#endif
  executable_ = executable;
}

Graph::~Graph() {
  if (executable_ != nullptr) static_cast<void>(RT(GraphExecDestroy)(static_cast<RT(GraphExec_t)>(executable_)));
  if (graph_ != nullptr) static_cast<void>(RT(GraphDestroy)(static_cast<RT(Graph_t)>(graph_)));
}

GraphNodes Graph::nodes() const {
  const auto graph = static_cast<RT(Graph_t)>(graph_);
  std::size_t count = 0;
  RAGGEDMLA_GPU_CHECK(RT(GraphGetNodes)(graph, nullptr, &count));
  std::vector<RT(GraphNode_t)> handles(count);
  if (count > 0) RAGGEDMLA_GPU_CHECK(RT(GraphGetNodes)(graph, handles.data(), &count));
  GraphNodes result;
  for (const auto handle : handles) {
    RT(GraphNodeType) type{};
    RAGGEDMLA_GPU_CHECK(RT(GraphNodeGetType)(handle, &type));
    ++(type == RT(GraphNodeTypeKernel) ? result.kernels : result.others);
  }
  return result;
}

void Graph::replay(const OwnedStream& stream) const {
  const gpu::DeviceScope scope(device_.index);
  RAGGEDMLA_GPU_CHECK(RT(GraphLaunch)(static_cast<RT(GraphExec_t)>(executable_), gpu::native(stream.get())));
}

namespace {

std::vector<double> time_gpu_runs(const OwnedStream& stream, Device device, int repetitions,
                                  const std::function<void(int)>& work) {
  const gpu::DeviceScope scope(device.index);
  std::vector<RT(Event_t)> events(static_cast<std::size_t>(repetitions) + 1);
  for (auto& event : events) RAGGEDMLA_GPU_CHECK(RT(EventCreate)(&event));
  const gpu::NativeStream native = gpu::native(stream.get());
  RAGGEDMLA_GPU_CHECK(RT(EventRecord)(events[0], native));
  for (int i = 0; i < repetitions; ++i) {
    work(i);
    RAGGEDMLA_GPU_CHECK(RT(EventRecord)(events[static_cast<std::size_t>(i) + 1], native));
  }
  stream.synchronize();
  std::vector<double> seconds;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    float milliseconds = 0;
    RAGGEDMLA_GPU_CHECK(RT(EventElapsedTime)(&milliseconds, events[i], events[i + 1]));
    seconds.push_back(milliseconds * 1e-3);
  }
  for (auto& event : events) RAGGEDMLA_GPU_CHECK(RT(EventDestroy)(event));
  return seconds;
}

}  // namespace

#else  // no GPU backend

DeviceType gpu_type() { return DeviceType::cpu; }
int gpu_count() { return 0; }

Memory::Memory(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (device.type != DeviceType::cpu) no_gpu();
  if (bytes > 0) data_ = ::operator new(bytes, alignment);
}
Memory::~Memory() {
  if (data_ != nullptr) ::operator delete(data_, alignment);
}
void Memory::upload(const void* source, std::size_t bytes, std::size_t offset) {
  if (bytes > 0) std::memcpy(static_cast<char*>(data_) + offset, source, bytes);
}
void Memory::download(void* target, std::size_t bytes, std::size_t offset) const {
  if (bytes > 0) std::memcpy(target, static_cast<const char*>(data_) + offset, bytes);
}
void Memory::fill(std::uint8_t byte) {
  if (bytes_ > 0) std::memset(data_, byte, bytes_);
}
void synchronize(Device) {}
OwnedStream::OwnedStream(Device device) : device_(device) {
  if (device.type != DeviceType::cpu) no_gpu();
}
OwnedStream::~OwnedStream() = default;
void OwnedStream::synchronize() const {}
Graph::Graph(Device, const std::function<void(Stream)>&) { no_gpu(); }
Graph::~Graph() = default;
GraphNodes Graph::nodes() const { return {}; }
void Graph::replay(const OwnedStream&) const {}

#endif

Memory::Memory(Memory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::vector<double> time_runs(const OwnedStream& stream, Device device, int repetitions,
                              const std::function<void(int)>& work) {
#if RAGGEDMLA_HOST_HAS_GPU
  if (device.type != DeviceType::cpu) return time_gpu_runs(stream, device, repetitions, work);
#else
  static_cast<void>(stream);
  static_cast<void>(device);
#endif
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work(i);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return seconds;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace raggedmla::host
