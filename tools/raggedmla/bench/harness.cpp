#include "harness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "device_data.hpp"

namespace raggedmla::bench {

namespace {

constexpr double micro = 1e6;

const DeviceInfo& device_info(Device device) {
  static const std::vector<DeviceInfo> all = devices();
  for (const DeviceInfo& info : all) {
    if (info.device == device) return info;
  }
  throw DeviceError("bench: no such device");
}

double measure_copy(const Bench& bench) {
  constexpr std::size_t bytes = std::size_t{2} << 30;
  const host::Memory source = bench.allocate(bytes), target = bench.allocate(bytes);
  fill_bf16(source.data(), bytes / 2, 3, bench.stream.get());
  const double us = bench.time_graph(1, [&](int, Stream stream) {
    copy_bytes(target.data(), source.data(), static_cast<std::int64_t>(bytes), stream);
  });
  return 2.0 * static_cast<double>(bytes) / us * micro;
}

}  // namespace

double Result::floor() const { return std::max({matrix_floor, gather_floor, copy_floor}); }

Bench::Bench(const Options& options_) : options(options_), stream(options_.device) { preload(options.device); }

double Bench::time_graph(int sets, const std::function<void(int, Stream)>& call) const {
  for (int i = 0; i < sets; ++i) call(i, stream.get());
  const double estimate = host::median(host::time_runs(stream, options.device, 3, [&](int) { call(0, stream.get()); }));
  // A graph of at least 0.3 ms, so that its launch does not count; every set equally often.
  const int wanted = static_cast<int>(std::clamp(3e-4 / std::max(estimate, 1e-6), 1.0, 40.0));
  const int calls = std::max(1, (wanted + sets - 1) / sets) * sets;
  const host::Graph graph(options.device, [&](Stream captured) {
    for (int i = 0; i < calls; ++i) call(i % sets, captured);
  });
  const double seconds = std::max(estimate * calls, 1e-5);
  const int replays = static_cast<int>(std::clamp(0.06 / seconds, 7.0, 60.0));
  const auto replay = [&](int) { graph.replay(stream); };
  // Of two measurements of one tensor-core kernel behind each other, the second was up to 9 % slower: the first had
  // used up the card's power budget. So each starts on a rested card; short kernels do not come near the limit.
  constexpr double short_kernel = 1e-4;
  if (estimate > short_kernel) std::this_thread::sleep_for(std::chrono::milliseconds(150));
  static_cast<void>(host::time_runs(stream, options.device, 3, replay));
  return host::median(host::time_runs(stream, options.device, replays, replay)) / calls * micro;
}

double Bench::time_host(const std::function<void(Stream)>& call) const {
  constexpr int calls = 200;  // fewer than a launch queue holds: the host never waits for the device
  std::vector<double> runs;
  for (int run = 0; run < 9; ++run) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call(stream.get());
    runs.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
  }
  stream.synchronize();
  return host::median(runs) * micro;
}

double Bench::gather_rate(const void* rows, std::int64_t pitch, std::int64_t row_bytes, const std::int32_t* indices,
                          std::int64_t tokens, std::int64_t length) const {
  const host::Memory sink = allocate(256);
  const std::int64_t blocks = std::max<std::int64_t>(tokens, 4096);  // a ceiling is measured on a full device
  const double us = time_graph(1, [&](int, Stream s) {
    gather_rows_only(rows, pitch, row_bytes, indices, tokens, length, blocks, sink.data(), s);
  });
  return static_cast<double>(blocks) * static_cast<double>(length) * static_cast<double>(row_bytes) / us * micro;
}

Workspace Bench::workspace(std::vector<host::Memory>& owner, std::size_t bytes) const {
  owner.push_back(allocate(std::max<std::size_t>(bytes, 256)));
  const Workspace result{owner.back().data(), owner.back().bytes(), options.device};
  initialize_workspace(result, stream.get());
  return result;
}

void run_suites(Bench& bench) {
  const std::pair<const char*, void (*)(Bench&)> suites[] = {
      {"lists", run_lists}, {"prefill", run_prefill}, {"decode", run_decode}, {"seeds", run_seeds}};
  for (const std::string& name : bench.options.suites) {
    const bool known =
        std::any_of(std::begin(suites), std::end(suites), [&](const auto& s) { return name == s.first; });
    if (!known) throw Error("bench: unknown suite " + name + ", expected lists, prefill, decode or seeds");
  }
  bench.ceilings.copy_bytes_per_second = measure_copy(bench);
  bench.ceilings.matrix = measure_matrix_rate(bench.options.device);
  const host::Memory stamp = bench.allocate(256);
  const auto empty = [&](Stream stream) { time_stamp(static_cast<std::uint64_t*>(stamp.data()), stream); };
  bench.ceilings.launch_host_microseconds = bench.time_host(empty);
  bench.ceilings.node_microseconds = bench.time_graph(1, [&](int, Stream stream) { empty(stream); });
  for (const auto& [name, run] : suites) {
    const auto& wanted = bench.options.suites;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end()) run(bench);
  }
}

std::string table(const Bench& bench) {
  const DeviceInfo& info = device_info(bench.options.device);
  std::string text = fmt::format(
      "{} ({}), {} multiprocessors\ncopy {:.2f} TB/s; a kernel of one thread: {:.2f} us of host time, {:.2f} us a node "
      "of a replayed graph\nmatrix {}\n",
      info.name, info.architecture, info.multiprocessors, bench.ceilings.copy_bytes_per_second / 1e12,
      bench.ceilings.launch_host_microseconds, bench.ceilings.node_microseconds,
      bench.ceilings.matrix.flops_per_second > 0
          ? fmt::format("{:.0f} TFLOP/s ({})", bench.ceilings.matrix.flops_per_second / 1e12,
                        bench.ceilings.matrix.source)
          : "not measured: " + bench.ceilings.matrix.source);
  std::string suite;
  for (const Result& r : bench.results) {
    if (r.suite != suite) {
      suite = r.suite;
      text += fmt::format("\n{:<9}{:<44}{:<22}{:>10}{:>10}{:>7}{:>9}{:>9}  {}\n", suite, "shape", "variant", "us",
                          "floor us", "eff", "GB/s", "TFLOP/s", "note");
    }
    const auto cell = [](double value, int precision) {
      return value > 0 ? fmt::format("{:.{}f}", value, precision) : "-";
    };
    const double seconds = r.microseconds / micro;
    std::string note = r.note;
    if (r.host_microseconds > 0) note = fmt::format("host {:.2f} us  {}", r.host_microseconds, note);
    if (r.gap_microseconds > 0) note = fmt::format("gap {:.1f} us  {}", r.gap_microseconds, note);
    if (r.ratio > 0) note = fmt::format("{:.2f} x {}", r.ratio, note);
    text += fmt::format("{:<9}{:<44}{:<22}{:>10}{:>10}{:>7}{:>9}{:>9}  {}\n", "", r.shape, r.variant,
                        cell(r.microseconds, r.microseconds < 100 ? 2 : 1), cell(r.floor(), 2), cell(r.efficiency(), 2),
                        cell(seconds > 0 ? r.bytes / seconds / 1e9 : 0, 0),
                        cell(seconds > 0 ? r.flops / seconds / 1e12 : 0, 1), note);
  }
  return text;
}

std::string json(const Bench& bench) {
  const DeviceInfo& info = device_info(bench.options.device);
  nlohmann::json document;
  document["device"] = {
      {"name", info.name}, {"architecture", info.architecture}, {"multiprocessors", info.multiprocessors}};
  document["version"] = build_info().version;
  document["ceilings"] = {{"copy_bytes_per_second", bench.ceilings.copy_bytes_per_second},
                          {"launch_host_microseconds", bench.ceilings.launch_host_microseconds},
                          {"node_microseconds", bench.ceilings.node_microseconds},
                          {"matrix_flops_per_second", bench.ceilings.matrix.flops_per_second},
                          {"matrix_source", bench.ceilings.matrix.source}};
  for (const Result& r : bench.results) {
    document["results"].push_back({{"suite", r.suite},
                                   {"shape", r.shape},
                                   {"variant", r.variant},
                                   {"microseconds", r.microseconds},
                                   {"floor_microseconds", r.floor()},
                                   {"matrix_floor", r.matrix_floor},
                                   {"gather_floor", r.gather_floor},
                                   {"copy_floor", r.copy_floor},
                                   {"efficiency", r.efficiency()},
                                   {"bytes", r.bytes},
                                   {"flops", r.flops},
                                   {"host_microseconds", r.host_microseconds},
                                   {"gap_microseconds", r.gap_microseconds},
                                   {"ratio", r.ratio},
                                   {"note", r.note}});
  }
  return document.dump(1);
}

}  // namespace raggedmla::bench
