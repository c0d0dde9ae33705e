#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/error.hpp"
#include "deck/deck.hpp"
#include "record/quantile.hpp"
#include "record/result.hpp"

namespace minitaw::record {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

/// The slowest rank of each step.
std::vector<double> samples_of(const CaseResult& result) {
  std::vector<double> samples;
  for (const std::vector<double>& ranks : result.seconds)
    if (!ranks.empty()) samples.push_back(*std::ranges::max_element(ranks));
  std::ranges::sort(samples);
  return samples;
}

/// Standard deviation (n - 1) over mean; NaN for fewer than two.
double variation(const std::vector<double>& samples) {
  const double n = static_cast<double>(samples.size());
  if (n < 2) return none;
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / (n - 1)) / mean;
}

void add_times(Summary& s, const CaseResult& result) {
  const std::vector<double> sorted = samples_of(result);
  s.samples = static_cast<int>(sorted.size());
  s.cv = variation(sorted);
  s.median_s = quantile(sorted, 0.5);
  s.q1_s = quantile(sorted, 0.25);
  s.q3_s = quantile(sorted, 0.75);
  s.min_s = quantile(sorted, 0);
  s.max_s = quantile(sorted, 1);
  s.spread = (s.q3_s - s.q1_s) / s.median_s;
}

void add_rates(Summary& s, const deck::Case& settings) {
  const model::Flops flops = model::flops_per_token(settings.shape);
  s.tokens_per_s = tokens_of(settings) / s.median_s;
  s.tokens_per_s_rank = s.tokens_per_s / settings.ranks;
  s.tflops_causal = s.tokens_per_s * (flops.matmul + flops.attention_causal) * 1e-12;
  s.tflops_full = s.tokens_per_s * (flops.matmul + flops.attention_full) * 1e-12;
}

std::uint64_t sum(const std::array<std::uint64_t, schedule::memory_kinds>& kinds) {
  return std::accumulate(kinds.begin(), kinds.end(), std::uint64_t{0});
}

void add_memory(Summary& s, const CaseResult& result) {
  for (const RankMemory& rank : result.memory) {
    s.memory_planned = std::max(s.memory_planned, sum(rank.planned));
    s.memory_measured = std::max(s.memory_measured, sum(rank.measured));
    s.process_peak = std::max(s.process_peak, rank.process_peak);
    s.device_used = std::max(s.device_used, rank.device_used);
  }
}

/// Bytes [from][to][kind] split by whether the two ranks share a group.
void add_bytes(const std::vector<std::uint64_t>& bytes, const topology::Groups& groups, std::uint64_t& inside,
               std::uint64_t& between) {
  if (bytes.empty()) return;
  const auto ranks = static_cast<std::size_t>(groups.ranks());
  if (bytes.size() != ranks * ranks * schedule::traffic_kinds)
    throw LogicError(fmt::format("byte matrix of {} entries for {} ranks", bytes.size(), ranks));
  std::size_t i = 0;
  for (int from = 0; from < groups.ranks(); ++from)
    for (int to = 0; to < groups.ranks(); ++to)
      for (int kind = 0; kind < schedule::traffic_kinds; ++kind)
        (groups.together(from, to) ? inside : between) += bytes[i++];
}

/// Means over ranks of the accounted step; all NaN where there is none.
void add_account(Summary& s, const CaseResult& result) {
  const double ranks = static_cast<double>(result.time.size());
  trace::RankTime sum;
  double worst = 0;
  for (const trace::RankTime& rank : result.time) {
    sum.compute += rank.compute;
    sum.idle += rank.idle;
    sum.communication += rank.communication;
    sum.hidden += rank.hidden;
    for (std::size_t k = 0; k < sum.exposed.size(); ++k) sum.exposed[k] += rank.exposed[k];
    worst = std::max(worst, rank.idle);
  }
  s.compute_s = sum.compute / ranks;
  s.idle_s = sum.idle / ranks;
  for (std::size_t k = 0; k < sum.exposed.size(); ++k) s.exposed_s[k] = sum.exposed[k] / ranks;
  s.exposed_share = sum.exposed_total() / ranks / result.accounted_length;
  s.bubble = s.idle_s / result.accounted_length;
  s.bubble_max = worst / result.accounted_length;
  s.overlap = sum.overlap();
}

double energy_per_token(const CaseResult& result) {
  if (result.energy.empty()) return none;
  double joules = 0;
  for (const std::vector<double>& ranks : result.energy)
    joules = std::accumulate(ranks.begin(), ranks.end(), joules);
  return joules / (tokens_of(result.settings) * static_cast<double>(result.seconds.size()));
}

/// Share of samples in which a device was slowed; NaN where none tells, or one that tells nothing might have
/// been.
double throttled(const CaseResult& result) {
  const auto unknown = [](const DeviceSample& rank) { return rank.throttle == throttle_unknown; };
  const auto slowed = [](const DeviceSample& rank) {
    return (rank.throttle & throttled_by_heat_or_power) != 0;
  };
  for (const std::vector<DeviceSample>& ranks : result.device_samples)
    if (std::ranges::any_of(ranks, unknown)) return none;
  const auto count =
      std::ranges::count_if(result.device_samples, [&](const std::vector<DeviceSample>& ranks) {
        return std::ranges::any_of(ranks, slowed);
      });
  return static_cast<double>(count) / static_cast<double>(result.device_samples.size());
}

/// Means and extremes over samples and ranks; NaN where no device tells.
void add_counters(Summary& s, const CaseResult& result) {
  s.energy_per_token = energy_per_token(result);
  s.power_mean = s.clock_min = s.temperature_max = s.throttled = none;
  if (result.device_samples.empty()) return;
  double power = 0;
  for (const std::vector<DeviceSample>& ranks : result.device_samples)
    for (const DeviceSample& rank : ranks) {
      power += rank.power_w;
      s.clock_min = std::fmin(s.clock_min, rank.clock_mhz);
      s.temperature_max = std::fmax(s.temperature_max, rank.temperature_c);
    }
  s.power_mean = power / static_cast<double>(result.device_samples.size());
  s.throttled = throttled(result);
}

}  // namespace

Summary summarise(const CaseResult& result) {
  Summary s{};
  add_times(s, result);
  add_rates(s, result.settings);
  add_memory(s, result);
  add_bytes(result.counted_bytes, result.settings.groups, s.bytes_inside, s.bytes_between);
  add_bytes(result.planned_bytes, result.settings.groups, s.planned_inside, s.planned_between);
  add_account(s, result);
  add_counters(s, result);
  return s;
}

double tokens_of(const deck::Case& settings) { return deck::tokens_of_step(settings); }

double datasheet_peak(const std::string& unit, model::Dtype dtype) {
  struct Datasheet {
    std::string_view name;
    double bf16, fp32;  // TFLOP/s
  };
  static constexpr Datasheet known[] = {
      {"A100", 312, 19.5}, {"A10", 125, 31.2},      {"A30", 165, 10.3},    {"A40", 149.7, 37.4},
      {"L4", 121, 30.3},   {"L40", 181, 90.5},      {"L40S", 362, 91.6},   {"H100 80GB HBM3", 989, 67},
      {"H200", 989, 67},   {"H100 PCIe", 756, 51},  {"H100 NVL", 835, 60}, {"H200 NVL", 835, 60},
      {"B200", 2250, 75},  {"GH200 480GB", 989, 67}};
  const Datasheet* best = nullptr;
  for (const Datasheet& device : known) {
    const std::size_t at = unit.find(fmt::format("NVIDIA {}", device.name));
    const std::size_t end = at + 7 + device.name.size();
    if (at == std::string::npos || (end < unit.size() && std::isalnum(static_cast<unsigned char>(unit[end]))))
      continue;
    if (best == nullptr || device.name.size() > best->name.size()) best = &device;
  }
  if (best == nullptr || unit.find("MIG") != std::string::npos) return none;  // MIG: a part of a device
  return 1e12 * (dtype == model::Dtype::bf16 ? best->bf16 : best->fp32);
}

std::string name_of(Status status) {
  switch (status) {
  case Status::ok:
    return "ok";
  case Status::wrong:
    return "wrong";
  case Status::oom:
    return "oom";
  case Status::timeout:
    return "timeout";
  case Status::skipped:
    return "skipped";
  case Status::error:
    return "error";
  }
  throw LogicError("status without a name");
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

}  // namespace minitaw::record
