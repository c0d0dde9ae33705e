#include "timing.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "stopwatch.hpp"

namespace minitaw::bench {

namespace {

template <class Body>
auto* add(const std::string& name, Body body) {
  return benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

/// Taken before; so every output has them beside what they limit.
void add_limit(const std::string& name, const char* unit, const Limit& limit) {
  benchmark::AddCustomContext(name, fmt::format("{:.1f} G{}, {}", limit.rate / 1e9, unit, limit.how));
  add(name, [=](benchmark::State& state) {
    for (auto _ : state) state.SetIterationTime(limit.seconds);
    state.counters[unit] = limit.rate;
    state.counters[fmt::format("mean {}", unit)] = limit.mean;
  })->Iterations(1);
}

void report(benchmark::State& state, const Kernel& kernel, const Limits& limits, double seconds) {
  const Cost& cost = kernel.cost;
  if (cost.flops > 0) state.counters["FLOP/s"] = cost.flops / seconds;
  state.counters["B/s"] = cost.bytes / seconds;
  state.counters["MiB"] = cost.bytes / (1 << 20);
  state.counters["of_limit"] = limits.least_seconds(kernel.dtype, cost) / seconds;
  state.counters["of_cached"] = limits.least_seconds_cached(kernel.dtype, cost) / seconds;
}

}  // namespace

void add_timings(const Limits& limits, const Kernels& kernels, Times& times) {
  add_limit("limit/triad", "B/s", limits.triad);
  for (const auto& [type, limit] : limits.product)
    add_limit("limit/matmul/" + model::name_of(type), "FLOP/s", limit);
  for (const Kernel& kernel : kernels)
    add(kernel.label, [&limits, &kernel, &times](benchmark::State& state) {
      const Problem problem = kernel.make();
      Stopwatch watch(problem.run);
      for (auto _ : state) state.SetIterationTime(watch.measure());
      times[kernel.label] = watch.fastest();
      report(state, kernel, limits, watch.fastest());
    });
}

}  // namespace minitaw::bench
