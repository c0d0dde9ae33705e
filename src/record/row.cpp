// SPDX-License-Identifier: BSD-3-Clause
#include "record/row.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>
#include "base/error.hpp"
#include "deck/keys.hpp"

namespace minitaw::record {
static constexpr double none = std::numeric_limits<double>::quiet_NaN();

double datasheet_peak(const std::string& unit, model::Dtype dtype) {
  struct Datasheet {
    std::string_view name;
    double bf16, fp32;  // TFLOP/s
  };

  static constexpr Datasheet known[] = {{"A100", 312, 19.5},
      {"A10", 125, 31.2},
      {"A30", 165, 10.3},
      {"A40", 149.7, 37.4},
      {"L4", 121, 30.3},
      {"L40", 181, 90.5},
      {"L40S", 362, 91.6},
      {"H100 80GB HBM3", 989, 67},
      {"H200", 989, 67},
      {"H100 PCIe", 756, 51},
      {"H100 NVL", 835, 60},
      {"H200 NVL", 835, 60},
      {"B200", 2250, 75},
      {"GH200 480GB", 989, 67}};
  const Datasheet* best = nullptr;
  for (const Datasheet& device : known) {
    const std::size_t at = unit.find(fmt::format("NVIDIA {}", device.name));
    const std::size_t end = at + 7 + device.name.size();
    if (at == std::string::npos ||
        (end < unit.size() && std::isalnum(static_cast<unsigned char>(unit[end]))))
      continue;
    if (best == nullptr || device.name.size() > best->name.size())
      best = &device;
  }
  if (best == nullptr || unit.find("MIG") != std::string::npos)
    return none;  // MIG: a part of a device
  return 1e12 * (dtype == model::Dtype::bf16 ? best->bf16 : best->fp32);
}

double common_peak(const std::vector<std::string>& units, const Case& c) {
  const double first = datasheet_peak(units.at(0), c.shape.dtype);
  for (int rank = 1; rank < c.ranks; ++rank)
    if (datasheet_peak(units.at(rank), c.shape.dtype) != first)
      return none;
  return first;
}

// The figures of a case: NaN or 0 where there are no samples, or no planned or counted values.

namespace {
template <class Range>
double mean(const Range& values) {
  if (values.empty())
    return none;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The slowest rank of each step, in rising order.
std::vector<double> samples_of(const CaseResult& result) {
  std::vector<double> samples =
      list_of(result.seconds, [](const auto& ranks) { return std::ranges::max(ranks); });
  std::ranges::sort(samples);
  return samples;
}

double spread_of(const std::vector<double>& samples) {
  return (quantile(samples, 0.75) - quantile(samples, 0.25)) / quantile(samples, 0.5);
}

/// Standard deviation (n - 1) over mean; NaN for fewer than two.
double variation(const std::vector<double>& samples) {
  if (samples.size() < 2)
    return none;
  const double middle = mean(samples);
  double squares = 0;
  for (const double sample : samples)
    squares += (sample - middle) * (sample - middle);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1)) / middle;
}

template <class Value>
std::int64_t worst(const CaseResult& result, const Value& value) {
  std::uint64_t most = 0;
  for (const RankMemory& rank : result.memory)
    most = std::max(most, value(rank));
  return static_cast<std::int64_t>(most);
}

std::uint64_t sum(const std::array<std::uint64_t, schedule::memory_kinds>& kinds) {
  return std::accumulate(kinds.begin(), kinds.end(), std::uint64_t{0});
}

/// Bytes [from][to][kind] split by whether the two ranks share a group.
struct Split {
  std::int64_t inside = 0, between = 0;

  Split(const std::vector<std::uint64_t>& bytes, const topology::Groups& groups) {
    const auto ranks = static_cast<std::size_t>(groups.ranks());
    if (!bytes.empty() && bytes.size() != ranks * ranks * schedule::traffic_kinds)
      throw LogicError(fmt::format("byte matrix of {} entries for {} ranks", bytes.size(), ranks));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto pair = static_cast<int>(i / schedule::traffic_kinds);
      (groups.together(pair / groups.ranks(), pair % groups.ranks()) ? inside : between) +=
          static_cast<std::int64_t>(bytes[i]);
    }
  }
};

/// Means and extremes of readings over samples and ranks; NaN: not available.
struct Counters {
  double energy_per_token = none, power = none, clock = none, temperature = none, throttled = none;

  Counters(const CaseResult& result, const Readings& read) {
    double joules = 0, watts = 0, slowed = 0;
    for (const std::vector<double>& ranks : read.energy)
      joules = std::accumulate(ranks.begin(), ranks.end(), joules);
    if (!read.energy.empty())
      energy_per_token =
          joules / (tokens_of_step(result.settings) * static_cast<double>(result.seconds.size()));
    if (read.samples.empty())
      return;
    bool unknown = false;  // a device without reasons might have been slowed
    for (const std::vector<DeviceSample>& ranks : read.samples) {
      for (const DeviceSample& rank : ranks) {
        watts += rank.power_w;
        clock = std::fmin(clock, rank.clock_mhz);
        temperature = std::fmax(temperature, rank.temperature_c);
        unknown |= rank.throttle == throttle_unknown;
      }
      slowed += std::ranges::any_of(ranks, [](const DeviceSample& rank) {
        return (rank.throttle & throttled_by_heat_or_power) != 0;
      });
    }
    const auto samples = static_cast<double>(read.samples.size());
    power = watts / samples;
    if (!unknown)
      throttled = slowed / samples;
  }
};

template <class T>
const T& get(const Row& row, std::string_view name) {
  if (const T* value = std::get_if<T>(&row.column(name).value))
    return *value;
  throw LogicError(fmt::format("column \"{}\" of the summary has another type", name));
}
}  // namespace

std::string verdict(const CaseResult& r) {
  if (r.status != Status::ok)
    return fmt::format(
        "INVALID: {}{}{}", name_of(r.status), r.reason.empty() ? "" : ": ", r.reason);
  if (std::ssize(r.position) < r.settings.repeats)
    return fmt::format(
        "INVALID: {} of {}", r.position.size(), counted(r.settings.repeats, "repetition"));
  if (std::ssize(r.seconds) < least_samples)
    return fmt::format("INVALID: {}, at least {} are needed",
        counted(std::ssize(r.seconds), "timed step"),
        least_samples);
  if (r.counted_bytes != r.planned_bytes)
    return "INVALID: the bytes counted are not those planned";
  std::vector<std::string> doubts;
  if (r.settings.warmup == 0)
    doubts.emplace_back("no warm-up");
  if (const double spread = spread_of(samples_of(r)); spread > widest_spread)
    doubts.push_back(fmt::format("noisy: quartiles {:.0f} % of the median apart", 100 * spread));
  return doubts.empty() ? "VALID" : fmt::format("VALID ({})", fmt::join(doubts, "; "));
}

Row make_row(const CaseResult& result, int number, int session) {
  using enum Place;
  using enum schedule::Traffic;
  const Case& c = result.settings;
  const std::vector<double> samples = samples_of(result);
  const double step = quantile(samples, 0.5), tokens_per_s = tokens_of_step(c) / step;
  const model::Flops flops = model::flops_per_token(c.shape);
  const double tflops = 1e-12 * tokens_per_s * (flops.matmul + flops.attention_causal);
  const Split counted(result.counted_bytes, c.groups), planned(result.planned_bytes, c.groups);
  const auto ranks = static_cast<double>(result.time.size());
  const trace::RankTime total = trace::total_of(result.time);
  const double length = result.accounted_length;
  const auto exposed = [&](schedule::Traffic kind) {
    return total.exposed[static_cast<std::size_t>(kind)] / ranks;
  };
  double most_idle = 0;
  for (const trace::RankTime& rank : result.time)
    most_idle = std::max(most_idle, rank.idle);
  const Counters counters(result, result.device), nodes(result, result.node);
  const auto& losses = result.losses;
  Row row = {{
      {"case", "1", nowhere, number},
      {"session", "1", itself, session},
      {"status", "text", itself, name_of(result.status)},
      {"verdict", "text", itself, verdict(result)},
      {"reason", "text", itself, result.reason},
      {"started", "text", itself, result.started},
  }};
  for (const deck::Setting& setting : deck::columns())
    row.columns.push_back({setting.name, setting.column.units, settings, setting.column.value(c)});
  const std::vector<Column> results = {
      {"median_s", "s", nowhere, step},
      {"q1_s", "s", nowhere, quantile(samples, 0.25)},
      {"q3_s", "s", nowhere, quantile(samples, 0.75)},
      {"min_s", "s", nowhere, quantile(samples, 0)},
      {"max_s", "s", nowhere, quantile(samples, 1)},
      {"samples", "1", nowhere, std::ssize(samples)},
      {"cv", "1", nowhere, variation(samples)},
      {"spread", "1", nowhere, spread_of(samples)},
      {"tokens_per_s", "token/s", nowhere, tokens_per_s},
      {"tokens_per_s_rank", "token/s", nowhere, tokens_per_s / c.ranks},
      {"tflops_causal", "TFLOP/s", nowhere, tflops},
      {"tflops_full",
          "TFLOP/s",
          nowhere,
          1e-12 * tokens_per_s * (flops.matmul + flops.attention_full)},
      {"tflops_rank", "TFLOP/s", nowhere, tflops / c.ranks},
      {"peak", "TFLOP/s", nowhere, 1e-12 * result.peak},
      {"mfu", "1", nowhere, 1e12 * tflops / c.ranks / result.peak},
      {"memory_planned",
          "B",
          nowhere,
          worst(result, [](const RankMemory& m) { return sum(m.planned); })},
      {"memory_measured",
          "B",
          nowhere,
          worst(result, [](const RankMemory& m) { return sum(m.measured) + m.other; })},
      {"process_begin",
          "B",
          nowhere,
          worst(result, [](const RankMemory& m) { return m.process_begin; })},
      {"process_peak",
          "B",
          nowhere,
          worst(result, [](const RankMemory& m) { return m.process_peak; })},
      {"device_used",
          "B",
          nowhere,
          worst(result, [](const RankMemory& m) { return m.device_used; })},
      {"bytes_inside", "B", nowhere, counted.inside},
      {"bytes_between", "B", nowhere, counted.between},
      {"rate_inside", "GB/s", nowhere, 1e-9 * static_cast<double>(counted.inside) / step},
      {"rate_between", "GB/s", nowhere, 1e-9 * static_cast<double>(counted.between) / step},
      {"planned_inside", "B", nowhere, planned.inside},
      {"planned_between", "B", nowhere, planned.between},
      {"bytes_source", "text", nowhere, result.bytes_source},
      {"exposed_share", "1", nowhere, total.exposed_total() / ranks / length},
      {"idle_share", "1", nowhere, total.idle / ranks / length},
      {"idle_share_max", "1", nowhere, most_idle / length},
      {"compute_s", "s", nowhere, total.compute / ranks},
      {"exposed_weights_s", "s", nowhere, exposed(weights)},
      {"exposed_gradients_s", "s", nowhere, exposed(gradients)},
      {"exposed_activations_s", "s", nowhere, exposed(activations)},
      {"exposed_embeddings_s", "s", nowhere, exposed(embeddings)},
      {"idle_s", "s", nowhere, total.idle / ranks},
      {"communication_s", "s", nowhere, total.communication / ranks},
      {"overlap", "1", nowhere, total.overlap()},
      {"blame", "text", nowhere, result.blame.text},
      {"culprit", "text", nowhere, result.blame.culprit},
      {"culprit_slower", "1", nowhere, result.blame.slower},
      {"culprit_share", "1", nowhere, result.blame.share},
      {"ticks", "tick", itself, result.ticks},
      {"idle_ticks", "tick", nowhere, mean(result.idle_ticks)},
      {"first_loss", "nat/token", nowhere, losses.empty() ? none : losses.front()},
      {"last_loss", "nat/token", nowhere, losses.empty() ? none : losses.back()},
      {"gradient_error", "1", verification, result.max_gradient_error},
      {"loss_error", "1", verification, result.max_loss_error},
      {"attention_used", "text", itself, result.attention},
      {"transport_used", "text", itself, result.transport},
      {"counters", "text", itself, result.device.source},
      {"energy_per_token", "J/token", nowhere, counters.energy_per_token},
      {"power_mean", "W", nowhere, counters.power},
      {"clock_min", "MHz", nowhere, counters.clock},
      {"temperature_max", "degC", nowhere, counters.temperature},
      {"throttled", "1", nowhere, counters.throttled},
      {"node_counters", "text", nowhere, result.node.source},
      {"node_energy_per_token", "J/token", nowhere, nodes.energy_per_token},
      {"node_power_mean", "W", nowhere, nodes.power},
      {"identity", "text", settings, deck::identity(c)},
  };
  row.columns.insert(row.columns.end(), results.begin(), results.end());
  return row;
}

Row sample_row() {
  CaseResult empty;
  empty.settings.shape = {
      1, 2, 1, 1, {1}, 1, 1, 1};  // any valid one: only the types of its row matter
  return make_row(empty);
}

std::vector<Row> preview(const std::vector<Case>& cases) {
  std::vector<Row> rows;
  for (const Case& c : cases) {
    CaseResult result;
    result.settings = c;
    rows.push_back(make_row(result));
  }
  return rows;
}

std::string Column::text() const {
  return to_text(value);
}

const Column& Row::column(std::string_view name) const {
  const auto at = std::ranges::find(columns, name, &Column::name);
  if (at == columns.end())
    throw LogicError(fmt::format("the summary has no column \"{}\"", name));
  return *at;
}

const std::string& Row::text(std::string_view column) const {
  return get<std::string>(*this, column);
}

std::int64_t Row::integer(std::string_view column) const {
  return get<std::int64_t>(*this, column);
}

double Row::real(std::string_view column) const {
  return get<double>(*this, column);
}
}  // namespace minitaw::record
