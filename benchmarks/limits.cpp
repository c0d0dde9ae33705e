#include "limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/kernels.hpp"
#include "model/layout.hpp"
#include "stopwatch.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

struct Triad {
  float* a;
  const float *b, *c;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { a[i] = b[i] + 3.0F * c[i]; }
};

Stopwatch timed(const std::function<void()>& run, double least_total) {
  Stopwatch watch(run);
  while (watch.calls() < 10 || watch.total() < least_total) watch.measure();
  return watch;
}

/// Of calls that do this `work` each, in FLOP or bytes.
Limit limit_of(double work, const Stopwatch& watch, std::string how) {
  return {work / watch.fastest(), watch.fastest(), std::move(how),
          work * static_cast<double>(watch.calls()) / watch.total()};
}

/// The triad's arrays, and the time of a call over their first `count` elements.
class TriadArrays {
public:
  explicit TriadArrays(std::int64_t mib) : a_(1, elements(mib)), b_(1, elements(mib)), c_(1, elements(mib)) {}

  [[nodiscard]] Stopwatch measure(std::int64_t count, double least_total) const {
    const Triad body{a_.vector().data(), b_.vector().data(), c_.vector().data()};
    return timed(
        [=] {
          using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
          Kokkos::parallel_for("benchmark triad", Range(0, count), body);
        },
        least_total);
  }
  [[nodiscard]] std::int64_t count() const { return a_.cols(); }
  [[nodiscard]] static double bytes(std::int64_t count) {
    return 3 * sizeof(float) * static_cast<double>(count);
  }

private:
  static std::int64_t elements(std::int64_t mib) {
    return mib * (1 << 20) / static_cast<std::int64_t>(sizeof(float));
  }

  Values<float> a_, b_, c_;
};

Limit triad(std::int64_t mib) {
  const TriadArrays arrays(mib);
  return limit_of(TriadArrays::bytes(arrays.count()), arrays.measure(arrays.count(), 0.5),
                  fmt::format("a = b + s c, fp32, {} MiB each", mib));
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
  const auto run = [=] {
    kernels::matmul<E, E>(ExecutionSpace(), c.matrix(), a.matrix(), kernels::Op::plain, b.matrix(),
                          kernels::Op::transposed, 0);
  };
  const auto side = static_cast<double>(n);
  return limit_of(2 * side * side * side, timed(run, 0.5), fmt::format("{0} x {0} x {0}", n));
}

}  // namespace

double Limits::least_seconds(model::Dtype dtype, const Cost& cost) const {
  return std::max(cost.flops / product.at(dtype).rate, cost.bytes / triad.rate);
}

double Limits::cached_rate(double bytes) const {
  const auto above = small_triads.lower_bound(bytes);
  if (small_triads.empty() || above == small_triads.end()) return triad.rate;
  if (above == small_triads.begin()) return above->second;
  const auto below = std::prev(above);
  const double way = std::log(bytes / below->first) / std::log(above->first / below->first);
  return below->second + way * (above->second - below->second);
}

double Limits::least_seconds_cached(model::Dtype dtype, const Cost& cost) const {
  return std::max(cost.flops / product.at(dtype).rate, cost.bytes / cached_rate(cost.bytes));
}

std::map<double, double> measure_small_triads(std::int64_t triad_mib) {
  const TriadArrays arrays(triad_mib);
  std::map<double, double> rates;
  for (std::int64_t count = (256 << 10) / 12; count < arrays.count(); count *= 2)
    rates[TriadArrays::bytes(count)] = TriadArrays::bytes(count) / arrays.measure(count, 0.1).fastest();
  return rates;
}

Limits best_of(const Limits& a, const Limits& b) {
  const auto best = [](const Limit& x, const Limit& y) { return x.rate < y.rate ? y : x; };
  Limits found{best(a.triad, b.triad), a.product, a.small_triads};
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
  Limits limits{triad(triad_mib), {}, {}};
  for (const model::Dtype type : types)
    model::with_element(type, [&]<class E>(E) { limits.product[type] = square_product<E>(); });
  return limits;
}

}  // namespace minitaw::bench
