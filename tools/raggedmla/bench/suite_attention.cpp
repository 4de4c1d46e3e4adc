// Suites `prefill` and `decode`: attention at the shapes of DeepSeek-V4 Flash and Pro, with and without tensor
// parallelism.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "attention_inputs.hpp"

namespace raggedmla::bench {

namespace {

constexpr double micro = 1e6;

std::int64_t queries_of(const PrefillShape& s) { return s.tokens; }
std::int64_t queries_of(const DecodeShape& s) { return s.batch; }

std::string text_of(const PrefillShape& s) {
  std::string text =
      fmt::format("{} H {} K {} T {}{}", s.name, s.heads, s.list_length(), s.tokens, s.fp8_pages ? " fp8" : "");
  if (s.kind == RowKind::ranges) return text + " ranges";
  if (s.window_is_disjoint && s.overlap == 0) return text + " disjoint";
  return text + fmt::format(" overlap {:.2f}", s.overlap);
}

std::string text_of(const DecodeShape& s) {
  return fmt::format("{} H {} K {} batch {}{}", s.name, s.heads, s.list_length(), s.batch,
                     s.kind == RowKind::ranges ? " ranges" : "");
}

/// Floors of a call: products, gathered bytes at this buffer's gather rate, every distinct byte once.
template <class Shape>
void set_floors(const Bench& bench, const Shape& shape, const AttentionInputs& inputs, Result& r) {
  const auto T = static_cast<double>(queries_of(shape));
  r.flops = 4.0 * T * static_cast<double>(shape.heads * shape.list_length() * v4_row.value_width);
  double row_bytes = 584;
  if constexpr (std::is_same_v<Shape, PrefillShape>) row_bytes = shape.fp8_pages ? 584 : 1024;
  r.bytes = T * static_cast<double>(shape.list_length()) * row_bytes +
            2.0 * T * static_cast<double>(shape.heads) * 2.0 * v4_row.query_width;
  if (bench.ceilings.matrix.flops_per_second > 0)
    r.matrix_floor = r.flops / bench.ceilings.matrix.flops_per_second * micro;
  r.copy_floor = inputs.unique_bytes / bench.ceilings.copy_bytes_per_second * micro;
  if (inputs.gathered_rows != nullptr) {
    const double rate = bench.gather_rate(inputs.gathered_rows, inputs.gathered_pitch, inputs.gathered_row_bytes,
                                          inputs.gathered_lists, queries_of(shape), inputs.gathered_length);
    r.gather_floor = T * static_cast<double>(shape.list_length()) * row_bytes / rate * micro;
  }
}

template <class Shape>
void measure(Bench& bench, const char* suite, const Shape& shape) {
  // Enough buffer sets that q, out, lists and rows of one call have left the cache when it comes round again.
  std::vector<std::unique_ptr<AttentionInputs>> sets;
  sets.push_back(std::make_unique<AttentionInputs>(bench, shape, 1));
  const int wanted = static_cast<int>(std::clamp(150e6 / sets[0]->unique_bytes + 1, 1.0, 8.0));
  while (static_cast<int>(sets.size()) < wanted) {
    sets.push_back(std::make_unique<AttentionInputs>(bench, shape, 100 * sets.size()));
  }
  Result r;
  r.suite = suite;
  r.shape = text_of(shape);
  set_floors(bench, shape, *sets[0], r);

  std::vector<std::pair<const char*, Schedule::Kernel>> kernels{{"portable", Schedule::Kernel::portable},
                                                                {"sm90", Schedule::Kernel::sm90},
                                                                {"automatic", Schedule::Kernel::automatic}};
  const auto chosen = bench.options.kernel;
  if (chosen != Schedule::Kernel::automatic) std::erase_if(kernels, [&](const auto& k) { return k.second != chosen; });
  double portable = 0;
  for (const auto& [name, kernel] : kernels) {
    try {
      for (const auto& set : sets) set->prepare(kernel);
    } catch (const Error&) {
      if (kernel != Schedule::Kernel::sm90) throw;
      continue;  // no Hopper kernel takes this call
    }
    Result line = r;
    line.variant = name;
    line.microseconds = bench.time_graph(static_cast<int>(sets.size()),
                                         [&](int i, Stream stream) { sets[static_cast<std::size_t>(i)]->run(stream); });
    if (kernel == Schedule::Kernel::portable) portable = line.microseconds;
    if (kernel == Schedule::Kernel::automatic) {
      line.host_microseconds = bench.time_host([&](Stream stream) { sets[0]->run(stream); });
      if (portable > 0) {
        line.ratio = line.microseconds / portable;
        line.note = "portable";
      }
    }
    bench.results.push_back(line);
  }
}

}  // namespace

void run_prefill(Bench& bench) {
  const auto lists = [](const char* name, std::int64_t T, std::int64_t H, std::int64_t topk, double overlap,
                        bool disjoint) {
    return PrefillShape{name, T, H, 128, topk, RowKind::lists, overlap, disjoint, 8192};
  };
  const auto ranges = [](const char* name, std::int64_t T, std::int64_t H, std::int64_t compressed) {
    return PrefillShape{name, T, H, 128, compressed, RowKind::ranges, 0, false, 8192};
  };
  std::vector<PrefillShape> shapes{
      lists("flash-tp1", 4096, 64, 512, 0, true),
      lists("pro-tp1", 4096, 128, 1024, 0, true),
      lists("pro-tp8", 4096, 16, 1024, 0, true),
      lists("flash-tp8", 4096, 8, 512, 0, true),
      lists("hca-lists", 4096, 16, 256, 0, true),
      ranges("hca", 4096, 16, 256),
      ranges("hca-1M", 4096, 16, 8192),
      ranges("hca", 4096, 8, 256),
      ranges("swa", 4096, 16, 0),
  };
  for (const double overlap : {0.0, 0.5, 0.8, 0.95}) {
    shapes.push_back(lists("pro-tp8", 4096, 16, 1024, overlap, false));
    shapes.push_back(lists("flash-tp8", 4096, 8, 512, overlap, false));
  }
  const auto over_fp8_pages = [](PrefillShape shape) {
    shape.fp8_pages = true;
    return shape;
  };
  shapes.push_back(over_fp8_pages(ranges("hca", 4096, 16, 256)));
  shapes.push_back(over_fp8_pages(lists("flash-tp1", 4096, 64, 512, 0, true)));
  shapes.push_back(over_fp8_pages(lists("pro-tp8", 4096, 16, 1024, 0.8, false)));
  shapes.push_back(over_fp8_pages(lists("flash-tp8", 4096, 8, 512, 0, true)));
  if (!bench.options.quick) {
    shapes.push_back(over_fp8_pages(ranges("hca", 256, 16, 256)));
    shapes.push_back(over_fp8_pages(ranges("hca", 1024, 16, 256)));
    for (const std::int64_t T : {1, 16, 64, 256, 1024, 16384}) {
      shapes.push_back(lists("flash-tp1", T, 64, 512, 0, true));
      shapes.push_back(lists("pro-tp8", T, 16, 1024, 0, true));
      shapes.push_back(lists("pro-tp8", T, 16, 1024, 0.8, false));
      shapes.push_back(lists("flash-tp8", T, 8, 512, 0, true));
      shapes.push_back(ranges("hca", T, 16, 256));
    }
    for (const std::int64_t H : {24, 32, 48}) shapes.push_back(lists("heads", 4096, H, 512, 0, true));
    shapes.push_back(ranges("hca", 65536, 16, 256));
    shapes.push_back(lists("pro-tp8", 65536, 16, 1024, 0.8, false));
  }
  for (const PrefillShape& shape : shapes) measure(bench, "prefill", shape);
}

void run_decode(Bench& bench) {
  struct Model {
    const char* name;
    std::int64_t heads, topk;
  };
  for (const Model& m : {Model{"flash-tp1", 64, 512}, Model{"pro-tp1", 128, 1024}, Model{"pro-tp8", 16, 1024},
                         Model{"flash-tp8", 8, 512}}) {
    for (const std::int64_t batch : {1, 4, 16, 64, 128, 256}) {
      if (bench.options.quick && batch != 1 && batch != 64 && batch != 256) continue;
      measure(bench, "decode", DecodeShape{m.name, batch, m.heads, 128, m.topk});
    }
  }
  for (const std::int64_t batch : {1, 16, 64, 128, 256}) {
    if (bench.options.quick && batch != 16) continue;
    measure(bench, "decode", DecodeShape{"hca-1M", batch, 16, 128, 8192, RowKind::ranges, 2, 8192});
  }
}

}  // namespace raggedmla::bench
