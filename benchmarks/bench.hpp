#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <string>

#include "base/bf16.hpp"
#include "kernels/detail/scalar.hpp"
#include "kernels/types.hpp"

/// What the benchmarks share: filled memory, timing of asynchronous kernels, rates.
namespace minitaw::bench {

using kernels::ExecutionSpace;

/// Largest problem, so that a small machine can run all of them: --scale of main.
struct Sizes {
  std::int64_t tokens = 512;
  std::int64_t hidden = 512;
  std::int64_t ffn = 1376;
  std::int64_t vocab = 4096;
  int heads = 8, kv_heads = 8;
};
[[nodiscard]] Sizes& sizes();

/// Numbers of [-0.5, 0.5), or whole ones of [0, 100), from their position.
template <class E>
struct Fill {
  E* values;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto bits = static_cast<std::uint32_t>(i) * 2654435761U;
    bits = (bits ^ (bits >> 15)) * 2246822519U;
    const float x = static_cast<float>((bits ^ (bits >> 13)) >> 8) * 0x1p-24F;  // of [0, 1)
    if constexpr (std::is_integral_v<E>) values[i] = static_cast<E>(100 * x);
    else values[i] = kernels::detail::store<E>(x - 0.5F);
  }
};

/// Device memory with values that are neither zero nor equal: zeros run faster than data.
template <class E>
class Values {
public:
  explicit Values(std::int64_t rows, std::int64_t cols = 1)
      : view_(Kokkos::view_alloc("benchmark", Kokkos::WithoutInitializing), rows, cols) {
    using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
    Kokkos::parallel_for("benchmark values", Range(0, rows * cols), Fill<E>{view_.data()});
    Kokkos::fence();
  }
  [[nodiscard]] kernels::Matrix<E> matrix() const {
    return kernels::Matrix<E>(view_.data(), view_.extent(0), view_.extent(1));
  }
  [[nodiscard]] kernels::Vector<E> vector() const { return kernels::Vector<E>(view_.data(), view_.size()); }

private:
  Kokkos::View<E**, Kokkos::LayoutRight, kernels::MemorySpace> view_;
};

/// Fewest FLOPs and bytes of one call: every input read once, every output written once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// Times `kernel`, several calls between two fences so that launching is hidden where it can be.
template <class Kernel>
void measure(benchmark::State& state, const ExecutionSpace& exec, const Cost& cost, const Kernel& kernel) {
  using Clock = std::chrono::steady_clock;
  constexpr int calls = kernels::on_host ? 1 : 10;
  kernel();
  exec.fence();
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) kernel();
    exec.fence();
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count() / calls);
  }
  using benchmark::Counter;
  const auto runs = static_cast<double>(state.iterations());
  if (cost.flops > 0) state.counters["FLOP/s"] = Counter(cost.flops * runs, Counter::kIsRate);
  if (cost.bytes > 0) state.counters["B/s"] = Counter(cost.bytes * runs, Counter::kIsRate);
}

template <class E>
std::string name_of_type() {
  return std::is_same_v<E, float> ? "fp32" : "bf16";
}

// Each registers its benchmarks; called by main once the sizes are known.
void add_limits();
void add_linear();
void add_attention();
void add_layers();

template <class Body>
void add(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace minitaw::bench
