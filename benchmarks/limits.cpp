// The machine's own limits, taken in the same run: what the other rates are shares of.
#include "bench.hpp"
#include "kernels/matmul.hpp"

namespace minitaw::bench {

namespace {

void copy(benchmark::State& state) {
  const ExecutionSpace exec;
  const std::int64_t count = kernels::on_host ? std::int64_t{1} << 25 : std::int64_t{1} << 28;
  const Values<float> from(count), to(count);
  measure(state, exec, {.bytes = 8.0 * static_cast<double>(count)},
          [&] { Kokkos::deep_copy(exec, to.vector(), from.vector()); });
}

template <class E>
void square_product(benchmark::State& state) {
  const ExecutionSpace exec;
  const std::int64_t n = kernels::on_host ? (std::is_same_v<E, float> ? 1024 : 256) : 8192;
  const Values<E> a(n, n), b(n, n), c(n, n);
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  measure(state, exec, {.flops = flops}, [&] {
    kernels::matmul<E, E>(exec, c.matrix(), a.matrix(), kernels::Op::plain, b.matrix(),
                          kernels::Op::transposed, 0);
  });
}

}  // namespace

void add_limits() {
  add("limit/copy", copy);
  add("limit/matmul/fp32", square_product<float>);
  add("limit/matmul/bf16", square_product<Bf16>);
}

}  // namespace minitaw::bench
