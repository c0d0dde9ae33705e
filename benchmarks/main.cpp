// SPDX-License-Identifier: BSD-3-Clause
#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <fstream>
#include <set>

#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "layers.hpp"
#include "limits.hpp"

namespace minitaw::bench {
namespace {
/// Seconds of the fastest call, by label of the kernel.
using Times = std::map<std::string, double>;

template <class Body>
auto* add(const std::string& name, Body body) {
  return benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Taken before; so every output has them beside what they limit.
void add_limit(const std::string& name, const char* unit, const Limit& limit) {
  benchmark::AddCustomContext(
      name, fmt::format("{:.1f} G{}, {}", limit.rate / 1e9, unit, limit.how));
  add(name, [=](benchmark::State& state) {
    for (auto _ : state)
      state.SetIterationTime(limit.seconds);
    state.counters[unit] = limit.rate;
    state.counters[fmt::format("mean {}", unit)] = limit.mean;
  })->Iterations(1);
}

void report(benchmark::State& state, const Kernel& kernel, const Limits& limits, double seconds) {
  const Cost& cost = kernel.cost;
  if (cost.flops > 0)
    state.counters["FLOP/s"] = cost.flops / seconds;
  state.counters["B/s"] = cost.bytes / seconds;
  state.counters["MiB"] = cost.bytes / (1 << 20);
  state.counters["of_limit"] = limits.least_seconds(kernel.dtype, cost) / seconds;
  state.counters["of_cached"] = limits.least_seconds_cached(kernel.dtype, cost) / seconds;
}

/// Hands limits and kernels to Google Benchmark; `times` receives what it measures and must outlive
/// the run.
void add_timings(const Limits& limits, const Kernels& kernels, Times& times) {
  add_limit("limit/triad", "B/s", limits.triad);
  for (const auto& [type, limit] : limits.product)
    add_limit("limit/matmul/" + model::name_of(type), "FLOP/s", limit);
  for (const Kernel& kernel : kernels)
    add(kernel.label, [&limits, &kernel, &times](benchmark::State& state) {
      const Problem problem = kernel.make();
      Stopwatch watch(problem.run);
      for (auto _ : state)
        state.SetIterationTime(watch.measure());
      times[kernel.label] = watch.fastest();
      report(state, kernel, limits, watch.fastest());
    });
}

/// "1.2 G"; nothing for zero.
std::string scaled(double value) {
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}})
    if (value >= unit)
      return fmt::format("{:.3g} {}", value / unit, name);
  return value > 0 ? fmt::format("{:.3g}", value) : "";
}

/// The side of the roofline that it is on: FLOP/s or B/s.
std::string rate(const Limits& limits, const Kernel& kernel, double seconds) {
  const Cost& cost = kernel.cost;
  const bool by_flops =
      cost.flops / limits.product.at(kernel.dtype).rate > cost.bytes / limits.triad.rate;
  return by_flops ? scaled(cost.flops / seconds) + "FLOP/s" : scaled(cost.bytes / seconds) + "B/s";
}

/// Digits as far as they mean something.
std::string microseconds(double seconds) {
  const double time = seconds * 1e6;
  return fmt::format("{:.{}f}", time, time < 10 ? 2 : (time < 1000 ? 1 : 0));
}

std::string row(const Limits& limits, const Kernel& kernel, double seconds) {
  return fmt::format("| {} | {} | {} | {:.3g} | {} | {} | {:.0f} % | {:.0f} % |\n",
      kernel.name,
      kernel.shape,
      scaled(kernel.cost.flops),
      kernel.cost.bytes / (1 << 20),
      microseconds(seconds),
      rate(limits, kernel, seconds),
      100 * limits.least_seconds(kernel.dtype, kernel.cost) / seconds,
      100 * limits.least_seconds_cached(kernel.dtype, kernel.cost) / seconds);
}

/// The limits and, in Markdown, a row for each kernel that was timed.
std::string markdown(const Limits& limits, const Kernels& kernels, const Times& times) {
  std::string text =
      fmt::format("Triad {:.1f} GB/s ({})", limits.triad.rate / 1e9, limits.triad.how);
  for (const auto& [type, limit] : limits.product)
    text += fmt::format(
        "; matmul {} {:.1f} GFLOP/s ({})", model::name_of(type), limit.rate / 1e9, limit.how);
  text += ".\n\n| kernel | shape | FLOPs | MiB | time, us | rate | of limit | of it, cached "
          "|\n|---|---|---|---|---|---|---|---|\n";
  for (const Kernel& kernel : kernels)
    if (const auto time = times.find(kernel.label); time != times.end())
      text += row(limits, kernel, time->second);
  return text;
}

/// Words of Google Benchmark go to it, all others are ours.
Options take_options(int& argc, char** argv) {
  std::vector<std::string> own;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--benchmark_"))
      argv[kept++] = argv[i];
    else
      own.emplace_back(argv[i]);
  }
  argc = kept;
  return read_options(own);
}

void describe_machine() {
  for (const auto& [name, version] : kernels::library_versions())
    benchmark::AddCustomContext(name, version);
  benchmark::AddCustomContext("space", kernels::ExecutionSpace::name());
}

std::set<model::Dtype> types_of(const std::vector<Shape>& shapes) {
  std::set<model::Dtype> types;
  for (const Shape& shape : shapes)
    types.insert(shape.dtype);
  return types;
}

/// Opened before anything is measured: a name that cannot be written costs no time.
std::ofstream open_table(const Options& options) {
  std::ofstream file;
  if (options.markdown.empty())
    return file;
  file.open(options.markdown);
  if (!file)
    throw InputError("--markdown {}: cannot be written", options.markdown);
  return file;
}

/// Limits that another program has shared are too low, and shares of them too high.
void warn_of_drift(const Limits& before, const Limits& after) {
  if (const double change = before.drift(after); change > 0.1)
    fmt::print(stderr,
        "minitaw_kernels: the limits, taken again at the end, differ by {:.0f} %: something else "
        "uses this "
        "machine, and no share of a limit is to be trusted\n",
        100 * change);
}

/// A filter that selects nothing is found out before the limits take their time.
void require_selection(Kernels named) {
  for (const char* limit : {"limit/triad", "limit/matmul/fp32", "limit/matmul/bf16"}) {
    Kernel& entry = named.emplace_back();
    entry.label = limit;
  }
  (void)selected(named, benchmark::GetBenchmarkFilter());
}

int measure(const Options& options, const std::vector<Shape>& shapes, const Kernels& kernels) {
  require_selection(kernels);
  kernels::choose_by_time(kernels::ExecutionSpace(), true);  // as training steps do
  std::ofstream table = open_table(options);
  describe_machine();
  const std::int64_t triad_mib = options.triad_mib > 0 ? options.triad_mib : default_triad_mib();
  Limits before = measure_limits(types_of(shapes), triad_mib);
  before.small_triads = measure_small_triads(triad_mib);
  Times times;
  add_timings(before, kernels, times);
  benchmark::RunSpecifiedBenchmarks();
  if (times.empty())
    return 0;  // only the limits were asked for
  const Limits after = measure_limits(types_of(shapes), triad_mib);
  warn_of_drift(before, after);
  before.improve(after);
  if (table.is_open())
    table << markdown(before, kernels, times);
  return 0;
}

int run(const Options& options, const std::vector<Shape>& shapes) {
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
  kernels::require_one_layout();
  kernels::prepare(kernels::ExecutionSpace());
  const Kernels kernels = kernels_of(shapes);
  if (options.verify)
    return verify(selected(kernels, benchmark::GetBenchmarkFilter()), stdout) == 0 ? 0 : 1;
  return measure(options, shapes, kernels);
}

/// What can be said without a device comes first.
int start(int argc, char** argv) {
  const Options options = take_options(argc, argv);
  if (!options.help.empty())
    return fmt::print("{}", options.help), 0;
  const std::vector<Shape> shapes = shapes_of(options);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 2;
  const int code = run(options, shapes);
  benchmark::Shutdown();
  return code;
}
}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  try {
    return minitaw::bench::start(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_kernels: {}\n", error.what());
    return 2;
  }
}
