// SPDX-License-Identifier: BSD-3-Clause
#include "limits.hpp"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>

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
  while (watch.calls() < 10 || watch.total() < least_total)
    watch.measure();
  return watch;
}

/// Of calls that do this `work` each, in FLOP or bytes.
Limit limit_of(double work, const Stopwatch& watch, std::string how) {
  return {work / watch.fastest(),
      watch.fastest(),
      std::move(how),
      work * static_cast<double>(watch.calls()) / watch.total()};
}

/// The triad's arrays, and the time of a call over their first `count` elements.
struct TriadArrays {
  explicit TriadArrays(std::int64_t mib)
      : count(mib * (1 << 20) / static_cast<std::int64_t>(sizeof(float))),
        a(1, count),
        b(1, count),
        c(1, count) {}

  [[nodiscard]] Stopwatch measure(std::int64_t first, double least_total) const {
    using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
    const Triad body{a.vector().data(), b.vector().data(), c.vector().data()};
    return timed(
        [=] { Kokkos::parallel_for("benchmark triad", Range(0, first), body); }, least_total);
  }

  [[nodiscard]] static double bytes(std::int64_t elements) {
    return 3 * sizeof(float) * static_cast<double>(elements);
  }

  std::int64_t count;
  Values<float> a, b, c;
};

Limit triad(std::int64_t mib) {
  const TriadArrays arrays(mib);
  return limit_of(TriadArrays::bytes(arrays.count),
      arrays.measure(arrays.count, 0.5),
      fmt::format("a = b + s c, fp32, {} MiB each", mib));
}

/// bf16 on a host is the portable kernel, which has no peak to wait for.
template <class E>
Limit square_product() {
  const std::int64_t n = !kernels::on_host ? 8192 : std::is_same_v<E, float> ? 1024 : 256;
  const Values<E> a(n, n), b(n, n), c(n, n);
  const auto run = [=] {
    kernels::matmul<E, E>(ExecutionSpace(), c.matrix(), {a.matrix()}, {b.matrix(), true}, 0);
  };
  const auto side = static_cast<double>(n);
  return limit_of(2 * side * side * side, timed(run, 0.5), fmt::format("{0} x {0} x {0}", n));
}

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "266240K"
std::int64_t kib_of(const std::string& size) {
  return size.empty() ? 0 : std::atoll(size.c_str()) * (size.back() == 'M' ? 1024 : 1);
}

/// Sum over the caches of the highest level, each counted once for all processors that share it; 0:
/// unknown.
std::int64_t last_cache_mib() {
  std::map<int, std::map<std::string, std::int64_t>> kib;  // of each level, by who shares it
  std::error_code none;
  for (const auto& cpu : fs::directory_iterator("/sys/devices/system/cpu", none))
    for (const auto& index : fs::directory_iterator(cpu.path() / "cache", none))
      if (const std::string level = line_of(index.path() / "level"); !level.empty())
        kib[std::atoi(level.c_str())][line_of(index.path() / "shared_cpu_list")] =
            kib_of(line_of(index.path() / "size"));
  std::int64_t sum = 0;
  if (!kib.empty())
    for (const auto& [shared_by, size] : kib.rbegin()->second)
      sum += size;
  return sum / 1024;
}
}  // namespace

double Limits::least_seconds(model::Dtype dtype, const Cost& cost) const {
  return std::max(cost.flops / product.at(dtype).rate, cost.bytes / triad.rate);
}

/// The rate of a triad of as many bytes lies between those that were measured.
double Limits::least_seconds_cached(model::Dtype dtype, const Cost& cost) const {
  double rate = triad.rate;
  if (const auto above = small_triads.lower_bound(cost.bytes); above != small_triads.end()) {
    const auto below = above == small_triads.begin() ? above : std::prev(above);
    const double way = above == below ? 1
                                      : std::log(cost.bytes / below->first) /
                                            std::log(above->first / below->first);
    rate = below->second + way * (above->second - below->second);
  }
  return std::max(cost.flops / product.at(dtype).rate, cost.bytes / rate);
}

double Limits::drift(const Limits& after) const {
  double largest = std::abs(after.triad.rate / triad.rate - 1);
  for (const auto& [type, limit] : product)
    largest = std::max(largest, std::abs(after.product.at(type).rate / limit.rate - 1));
  return largest;
}

void Limits::improve(const Limits& other) {
  const auto better = [](const Limit& x, const Limit& y) { return x.rate < y.rate ? y : x; };
  triad = better(triad, other.triad);
  for (auto& [type, limit] : product)
    limit = better(limit, other.product.at(type));
}

std::map<double, double> measure_small_triads(std::int64_t triad_mib) {
  const TriadArrays arrays(triad_mib);
  std::map<double, double> rates;
  for (std::int64_t count = (256 << 10) / 12; count < arrays.count; count *= 2)
    rates[TriadArrays::bytes(count)] =
        TriadArrays::bytes(count) / arrays.measure(count, 0.1).fastest();
  return rates;
}

Limits measure_limits(const std::set<model::Dtype>& types, std::int64_t triad_mib) {
  Limits limits{triad(triad_mib), {}, {}};
  for (const model::Dtype type : types)
    model::with_element(type, [&]<class E>(E) { limits.product[type] = square_product<E>(); });
  return limits;
}

std::int64_t default_triad_mib() {
  if (!kernels::on_host)
    return 1024;
  const std::int64_t free_mib =
      static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE) / (1 << 20);
  const std::int64_t cache = last_cache_mib();
  return std::max<std::int64_t>(1, std::min(4 * (cache > 0 ? cache : 64), free_mib / 8));
}
}  // namespace minitaw::bench
