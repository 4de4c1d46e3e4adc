// See device_data.hpp. Plain kernels; none of them is part of the library.
#include "device_data.hpp"

#include "base/bfloat16.hpp"
#include "gpu/runtime.hpp"
#include "raggedmla/kv_cache.hpp"

namespace raggedmla::bench {

namespace {

constexpr unsigned block_size = 256;

__device__ std::uint64_t hash(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

__device__ float normal_from(std::uint64_t bits) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>((bits >> (16 * i)) & 0xFFFF) * (1.0f / 65536.0f);
  return (sum - 2.0f) * 1.7320508f;  // variance of the sum is 4 / 12
}

__device__ std::int64_t thread_index() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

dim3 grid_for(std::int64_t work) {
  const std::int64_t blocks = (work + block_size - 1) / block_size;
  return dim3(static_cast<unsigned>(blocks < 1 ? 1 : (blocks > 8192 ? 8192 : blocks)));
}

__global__ void bf16_kernel(std::uint16_t* data, std::int64_t count, std::uint64_t seed) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    data[i] = bf16_from_float(normal_from(hash(seed + static_cast<std::uint64_t>(i))));
  }
}

__global__ void pages_kernel(std::uint8_t* data, std::int64_t pages, std::int64_t page_stride, int rows_per_page,
                             std::uint64_t seed) {
  const std::int64_t payload = static_cast<std::int64_t>(rows_per_page) * (v4_row.data_bytes + v4_row.scale_bytes);
  for (std::int64_t n = thread_index(); n < pages * payload; n += thread_count()) {
    const std::int64_t at = n % payload;
    const std::uint64_t bits = hash(seed + static_cast<std::uint64_t>(n));
    std::uint8_t byte;
    if (at >= static_cast<std::int64_t>(rows_per_page) * v4_row.data_bytes) {
      byte = static_cast<std::uint8_t>(119 + bits % 3);
    } else if (at % v4_row.data_bytes < v4_row.nope_width) {
      byte = static_cast<std::uint8_t>(bits % 0x7F) | static_cast<std::uint8_t>((bits >> 32) & 0x80);
    } else {
      // Both bytes of a bf16 come from the same hash.
      const std::uint16_t value = bf16_from_float(normal_from(hash(seed + static_cast<std::uint64_t>(n / 2 * 2))));
      byte = static_cast<std::uint8_t>(at % 2 ? value >> 8 : value & 0xFF);
    }
    data[n / payload * page_stride + at] = byte;
  }
}

__global__ void lists_kernel(std::int32_t* indices, std::int64_t stride, ListShape shape, float period,
                             std::uint64_t seed) {
  const std::int64_t candidates = shape.rows / shape.length;
  for (std::int64_t n = thread_index(); n < shape.tokens * shape.length; n += thread_count()) {
    const std::int64_t t = n / shape.length, j = n % shape.length;
    const std::uint64_t slot = hash(seed + static_cast<std::uint64_t>(j));
    const float phase = static_cast<float>(slot & 0xFFFF) * (1.0f / 65536.0f) * period;
    const auto epoch = static_cast<std::int64_t>((static_cast<float>(t) + phase) / period);
    const auto base = static_cast<std::int64_t>((slot >> 16) & 0xFFFF);
    const std::int64_t row = j + shape.length * ((base + epoch) % candidates);
    const std::int64_t scattered = (row * 0x9E3779B1) & (shape.rows - 1);  // odd factor: a permutation
    indices[t * stride + j] = static_cast<std::int32_t>(scattered + t * shape.row_offset);
  }
}

__global__ void sequence_kernel(std::int32_t* data, std::int64_t count, std::int64_t first, std::int64_t step) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    data[i] = static_cast<std::int32_t>(first + step * i);
  }
}

__global__ void copy_kernel(uint4* target, const uint4* source, std::int64_t count) {
  std::int64_t i = thread_index();
  const std::int64_t step = thread_count();
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = source[i], b = source[i + step], c = source[i + 2 * step], d = source[i + 3 * step];
    target[i] = a;
    target[i + step] = b;
    target[i + 2 * step] = c;
    target[i + 3 * step] = d;
  }
  for (; i < count; i += step) target[i] = source[i];
}

/// One block per query; `row_bytes / 16` neighbouring threads read a row, eight rows in flight a thread.
__global__ void gather_kernel(const std::uint8_t* rows, std::int64_t pitch, int chunks, const std::int32_t* indices,
                              std::int64_t tokens, std::int64_t length, uint4* sink) {
  const std::int32_t* list = indices + static_cast<std::int64_t>(blockIdx.x) % tokens * length;
  const int chunk = static_cast<int>(threadIdx.x) % chunks, step = static_cast<int>(blockDim.x) / chunks;
  uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll 8
  for (std::int64_t j = static_cast<int>(threadIdx.x) / chunks; j < length; j += step) {
    const uint4 value = *reinterpret_cast<const uint4*>(rows + list[j] * pitch + chunk * 16);
    sum.x ^= value.x;
    sum.y ^= value.y;
    sum.z ^= value.z;
    sum.w ^= value.w;
  }
  if ((sum.x ^ sum.y) == 0x12345678u && (sum.z ^ sum.w) == 0x9ABCDEFu) *sink = sum;  // keeps the loads
}

__device__ std::uint64_t clock_nanoseconds() {
#if RAGGEDMLA_GPU_IS_HIP
  return wall_clock64() * 10;  // 100 MHz
#else
  std::uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
#endif
}

__global__ void stamp_kernel(std::uint64_t* nanoseconds) { *nanoseconds = clock_nanoseconds(); }

__global__ void spin_kernel(std::uint64_t nanoseconds, std::uint64_t* end) {
  const std::uint64_t start = clock_nanoseconds();
  while (clock_nanoseconds() - start < nanoseconds) {
  }
  *end = clock_nanoseconds();
}

/// One block: lengths clamped and scanned chunk by chunk.
__global__ void scan_kernel(const std::int32_t* lengths, std::int64_t tokens, std::int64_t width,
                            std::int32_t* indptr) {
  __shared__ std::int32_t sums[1024];
  std::int32_t carry = 0;
  for (std::int64_t base = 0; base < tokens; base += blockDim.x) {
    const std::int64_t t = base + threadIdx.x;
    std::int64_t value = t < tokens ? lengths[t] : 0;
    value = value < 0 ? 0 : (value > width ? width : value);
    sums[threadIdx.x] = static_cast<std::int32_t>(value);
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
      const std::int32_t other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += other;
      __syncthreads();
    }
    if (t < tokens) indptr[t + 1] = carry + sums[threadIdx.x];
    carry += sums[blockDim.x - 1];
    __syncthreads();
  }
  if (threadIdx.x == 0) indptr[0] = 0;
}

__global__ void pack_kernel(const std::int32_t* indices, std::int64_t width, const std::int32_t* indptr,
                            std::int32_t* flat) {
  const std::int64_t t = blockIdx.x;
  const std::int32_t begin = indptr[t], length = indptr[t + 1] - begin;
  for (std::int32_t j = static_cast<std::int32_t>(threadIdx.x); j < length;
       j += static_cast<std::int32_t>(blockDim.x)) {
    flat[begin + j] = indices[t * width + j];
  }
}

}  // namespace

void fill_bf16(void* data, std::int64_t count, std::uint64_t seed, Stream stream) {
  gpu::launch(bf16_kernel, grid_for(count), dim3(block_size), 0, stream, static_cast<std::uint16_t*>(data), count,
              seed);
}

void fill_fp8_pages(void* data, std::int64_t pages, std::int64_t page_stride, int rows_per_page, std::uint64_t seed,
                    Stream stream) {
  gpu::launch(pages_kernel, grid_for(pages * page_stride), dim3(block_size), 0, stream,
              static_cast<std::uint8_t*>(data), pages, page_stride, rows_per_page, seed);
}

void fill_lists(std::int32_t* indices, std::int64_t stride, const ListShape& shape, std::uint64_t seed, Stream stream) {
  const float period = static_cast<float>(1.0 / (1.0 - shape.overlap));
  gpu::launch(lists_kernel, grid_for(shape.tokens * shape.length), dim3(block_size), 0, stream, indices, stride, shape,
              period, seed);
}

void fill_sequence(std::int32_t* data, std::int64_t count, std::int64_t first, std::int64_t step, Stream stream) {
  gpu::launch(sequence_kernel, grid_for(count), dim3(block_size), 0, stream, data, count, first, step);
}

void copy_bytes(void* target, const void* source, std::int64_t bytes, Stream stream) {
  gpu::launch(copy_kernel, grid_for(bytes / 64), dim3(block_size), 0, stream, static_cast<uint4*>(target),
              static_cast<const uint4*>(source), bytes / 16);
}

void gather_rows_only(const void* rows, std::int64_t pitch, std::int64_t row_bytes, const std::int32_t* indices,
                      std::int64_t tokens, std::int64_t length, std::int64_t blocks, void* sink, Stream stream) {
  const int chunks = static_cast<int>(row_bytes / 16);
  const auto threads = static_cast<unsigned>(chunks * (512 / chunks));
  gpu::launch(gather_kernel, dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, stream,
              static_cast<const std::uint8_t*>(rows), pitch, chunks, indices, tokens, length,
              static_cast<uint4*>(sink));
}

void time_stamp(std::uint64_t* nanoseconds, Stream stream) {
  gpu::launch(stamp_kernel, dim3(1), dim3(1), 0, stream, nanoseconds);
}

void spin(std::uint64_t nanoseconds, std::uint64_t* end, Stream stream) {
  gpu::launch(spin_kernel, dim3(1), dim3(1), 0, stream, nanoseconds, end);
}

void scan_lengths(const std::int32_t* lengths, std::int64_t tokens, std::int64_t width, std::int32_t* indptr,
                  Stream stream) {
  gpu::launch(scan_kernel, dim3(1), dim3(1024), 0, stream, lengths, tokens, width, indptr);
}

void pack_rows(const std::int32_t* indices, std::int64_t width, const std::int32_t* indptr, std::int64_t tokens,
               std::int32_t* flat, Stream stream) {
  gpu::launch(pack_kernel, dim3(static_cast<unsigned>(tokens)), dim3(block_size), 0, stream, indices, width, indptr,
              flat);
}

std::int32_t read_back(const std::int32_t* value, Stream stream) {
  std::int32_t result = 0;
#if RAGGEDMLA_GPU_IS_HIP
  RAGGEDMLA_GPU_CHECK(hipMemcpyAsync(&result, value, sizeof(result), hipMemcpyDeviceToHost, gpu::native(stream)));
  RAGGEDMLA_GPU_CHECK(hipStreamSynchronize(gpu::native(stream)));
#else
  RAGGEDMLA_GPU_CHECK(cudaMemcpyAsync(&result, value, sizeof(result), cudaMemcpyDeviceToHost, gpu::native(stream)));
  RAGGEDMLA_GPU_CHECK(cudaStreamSynchronize(gpu::native(stream)));
#endif
  return result;
}

}  // namespace raggedmla::bench
