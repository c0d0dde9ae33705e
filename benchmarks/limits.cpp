#include "limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/matmul.hpp"
#include "model/element.hpp"
#include "stopwatch.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

struct Triad {
  float* a;
  const float *b, *c;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { a[i] = b[i] + 3.0F * c[i]; }
};

double fastest_call(const std::function<void()>& run) {
  Stopwatch watch(run);
  while (watch.calls() < 10 || watch.total() < 0.5) watch.measure();
  return watch.fastest();
}

Limit triad(std::int64_t mib) {
  const std::int64_t count = mib * (1 << 20) / static_cast<std::int64_t>(sizeof(float));
  const Values<float> a(1, count), b(1, count), c(1, count);
  const Triad body{a.vector().data(), b.vector().data(), c.vector().data()};
  const double seconds = fastest_call([=] {
    using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
    Kokkos::parallel_for("benchmark triad", Range(0, count), body);
  });
  return {12 * static_cast<double>(count) / seconds, seconds,
          fmt::format("a = b + s c, fp32, {} MiB each", mib)};
}

/// bf16 on a host is the portable kernel, which has no peak to wait for.
template <class E>
std::int64_t side() {
  if (!kernels::on_host) return 8192;
  return std::is_same_v<E, float> ? 1024 : 256;
}

template <class E>
Limit square_product() {
  const std::int64_t n = side<E>();
  const Values<E> a(n, n), b(n, n), c(n, n);
  const double seconds = fastest_call([=] {
    kernels::matmul<E, E>(ExecutionSpace(), c.matrix(), a.matrix(), kernels::Op::plain, b.matrix(),
                          kernels::Op::transposed, 0);
  });
  const auto side = static_cast<double>(n);
  return {2 * side * side * side / seconds, seconds, fmt::format("{0} x {0} x {0}", n)};
}

}  // namespace

double Limits::least_seconds(model::Dtype dtype, const Cost& cost) const {
  return std::max(cost.flops / product.at(dtype).rate, cost.bytes / triad.rate);
}

Limits best_of(const Limits& a, const Limits& b) {
  const auto best = [](const Limit& x, const Limit& y) { return x.rate < y.rate ? y : x; };
  Limits found{best(a.triad, b.triad), a.product};
  for (auto& [type, limit] : found.product) limit = best(limit, b.product.at(type));
  return found;
}

double drift(const Limits& before, const Limits& after) {
  double largest = std::abs(after.triad.rate / before.triad.rate - 1);
  for (const auto& [type, limit] : before.product)
    largest = std::max(largest, std::abs(after.product.at(type).rate / limit.rate - 1));
  return largest;
}

Limits measure_limits(const std::set<model::Dtype>& types, std::int64_t triad_mib) {
  Limits limits{triad(triad_mib), {}};
  for (const model::Dtype type : types)
    model::with_element(type, [&]<class E>(E) { limits.product[type] = square_product<E>(); });
  return limits;
}

}  // namespace minitaw::bench
