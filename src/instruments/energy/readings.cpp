// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/energy/readings.hpp"
#include <algorithm>
#include <cmath>
#include <numeric>
#include "record/provenance.hpp"

namespace minitaw::energy {
namespace {
constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::string source_of(const CaseResult& result, std::string_view name) {
  const auto text = result.values_of<std::string>(name);
  return text.empty() ? "unavailable" : text.front();
}

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// J of a token of the timed steps; NaN: not counted.
double energy_per_token(const CaseResult& result, std::string_view path) {
  const auto energy = result.values_of<double>(path);
  if (energy.empty())
    return none;
  return sum(energy) / (tokens_of_step(result.settings) * result.seconds.size());
}

/// W of all ranks together, a mean over the steps.
double mean_power(const CaseResult& result, std::string_view path) {
  const auto watts = result.values_of<double>(path);
  const Dataset* dataset = result.find(path);
  return watts.empty() ? none : sum(watts) / dataset->shape[0];
}

/// The extreme value of all steps and ranks, without those that are not known.
double extreme(const CaseResult& result, std::string_view path, double (*choose)(double, double)) {
  const auto values = result.values_of<double>(path);
  return std::accumulate(values.begin(), values.end(), none, choose);
}

/// Share of the steps in which heat or power slowed a rank; NaN if a device gives no reasons: it
/// might have been slowed.
double throttled_share(const CaseResult& result) {
  const auto bits = result.values_of<std::uint64_t>("device/throttle");
  if (bits.empty() || std::ranges::count(bits, throttle_unknown) > 0)
    return none;
  const std::vector<std::size_t>& shape = result.find("device/throttle")->shape;
  const auto is_slowed = [](std::uint64_t reasons) {
    return (reasons & throttled_by_heat_or_power) != 0;
  };
  std::size_t slowed = 0;
  for (std::size_t step = 0; step < shape[0]; ++step)
    slowed += std::ranges::any_of(bits.subspan(step * shape[1], shape[1]), is_slowed) ? 1 : 0;
  return static_cast<double>(slowed) / shape[0];
}

record::Cells columns(const CaseResult& result) {
  const auto least = [](double a, double b) { return std::fmin(a, b); };
  const auto most = [](double a, double b) { return std::fmax(a, b); };
  return {{"counters", source_of(result, "counters")},
      {"energy_per_token", energy_per_token(result, "device/energy")},
      {"power_mean", mean_power(result, "device/power")},
      {"clock_min", extreme(result, "device/clock", least)},
      {"temperature_max", extreme(result, "device/temperature", most)},
      {"throttled", throttled_share(result)},
      {"node_counters", source_of(result, "node_counters")},
      {"node_energy_per_token", energy_per_token(result, "node/energy")},
      {"node_power_mean", mean_power(result, "node/power")}};
}

/// A meter that was unavailable in an earlier repetition stays so.
void join(const record::Row& earlier, CaseResult& result) {
  for (const std::string name : {"counters", "node_counters"}) {
    const std::string& before = earlier.text(name);
    Dataset* text = result.find(name);
    if (text != nullptr && before.starts_with("unavailable"))
      text->values = one(before);
  }
}
}  // namespace

void add(const Readings& readings, bool of_nodes, CaseResult& result) {
  const std::string group = of_nodes ? "node/" : "device/";
  const std::vector<std::vector<DeviceSample>>& samples = readings.samples;
  const auto add_samples = [&](const char* name, const char* units, auto DeviceSample::* part) {
    std::vector<std::decay_t<decltype(DeviceSample{}.*part)>> values;
    for (const std::vector<DeviceSample>& ranks : samples)
      std::ranges::transform(ranks, std::back_inserter(values), part);
    const std::size_t ranks = samples.empty() ? 0 : samples.front().size();
    result.found.push_back({.path = group + name,
        .units = units,
        .axes = "timed step, rank",
        .values = std::move(values),
        .shape = {samples.size(), ranks}});
  };
  result.found.push_back(record::entry(of_nodes ? "node_counters" : "counters", readings.source));
  if (!of_nodes) {
    add_samples("clock", "MHz", &DeviceSample::clock_mhz);
    add_samples("memory_clock", "MHz", &DeviceSample::memory_clock_mhz);
    add_samples("temperature", "degC", &DeviceSample::temperature_c);
  }
  add_samples("power", "W", &DeviceSample::power_w);
  if (!of_nodes)
    add_samples("throttle", "1", &DeviceSample::throttle);
  const std::size_t repetitions = readings.energy.empty() ? 0 : 1;
  result.found.push_back({.path = group + "energy",
      .units = "J",
      .axes = "repetition, rank",
      .values = readings.energy,
      .shape = {repetitions, readings.energy.size()}});
}

record::Extension extension() {
  return {.columns = columns, .join = join};
}
}  // namespace minitaw::energy
