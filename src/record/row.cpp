// SPDX-License-Identifier: BSD-3-Clause
#include "record/row.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <numeric>
#include "base/error.hpp"
#include "deck/deck.hpp"
#include "deck/keys.hpp"
#include "record/layout.hpp"

namespace minitaw::record {
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
    return CaseResult::unknown;  // MIG: a part of a device
  return 1e12 * (dtype == model::Dtype::bf16 ? best->bf16 : best->fp32);
}

double common_peak(const std::vector<std::string>& units, const Case& c) {
  const double first = datasheet_peak(units.at(0), c.shape.dtype);
  for (int rank = 1; rank < c.ranks; ++rank)
    if (datasheet_peak(units.at(rank), c.shape.dtype) != first)
      return CaseResult::unknown;
  return first;
}

// The figures of a case: NaN or 0 where there are no samples, or no planned or counted values.

namespace {
double mean(const std::vector<int>& values) {
  if (values.empty())
    return CaseResult::unknown;
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

/// Of the rank that has most.
template <class Value>
std::int64_t worst(const CaseResult& result, const Value& value) {
  std::uint64_t most = 0;
  for (const RankMemory& rank : result.memory)
    most = std::max(most, std::invoke(value, rank));
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

/// The columns of the core.
static Cells cells_of(const CaseResult& result, int number, int session) {
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
  const auto& losses = result.losses;
  Cells cells = {
      {"case", number},
      {"session", session},
      {"status", name_of(result.status)},
      {"verdict", verdict(result)},
      {"reason", result.reason},
      {"started", result.started},
  };
  for (const deck::Setting& setting : deck::columns())
    cells.emplace_back(setting.name, setting.value(c));
  const Cells results = {
      {"median_s", step},
      {"q1_s", quantile(samples, 0.25)},
      {"q3_s", quantile(samples, 0.75)},
      {"samples", std::ssize(samples)},
      {"spread", spread_of(samples)},
      {"tokens_per_s", tokens_per_s},
      {"tokens_per_s_rank", tokens_per_s / c.ranks},
      {"tflops_causal", tflops},
      {"tflops_full", 1e-12 * tokens_per_s * (flops.matmul + flops.attention_full)},
      {"tflops_rank", tflops / c.ranks},
      {"peak", 1e-12 * result.peak},
      {"mfu", 1e12 * tflops / c.ranks / result.peak},
      {"memory_planned", worst(result, [](const RankMemory& m) { return sum(m.planned); })},
      {"memory_measured",
          worst(result, [](const RankMemory& m) { return sum(m.measured) + m.other; })},
      {"process_peak", worst(result, &RankMemory::process_peak)},
      {"device_used", worst(result, &RankMemory::device_used)},
      {"bytes_inside", counted.inside},
      {"bytes_between", counted.between},
      {"rate_inside", 1e-9 * static_cast<double>(counted.inside) / step},
      {"rate_between", 1e-9 * static_cast<double>(counted.between) / step},
      {"planned_inside", planned.inside},
      {"planned_between", planned.between},
      {"bytes_source", result.bytes_source},
      {"exposed_share", total.exposed_total() / ranks / length},
      {"idle_share", total.idle / ranks / length},
      {"compute_s", total.compute / ranks},
      {"exposed_weights_s", exposed(weights)},
      {"exposed_gradients_s", exposed(gradients)},
      {"exposed_activations_s", exposed(activations)},
      {"exposed_embeddings_s", exposed(embeddings)},
      {"exposed_context_s", exposed(context)},
      {"idle_s", total.idle / ranks},
      {"overlap", total.overlap()},
      {"ticks", result.ticks},
      {"idle_ticks", mean(result.idle_ticks)},
      {"first_loss", losses.empty() ? CaseResult::unknown : losses.front()},
      {"last_loss", losses.empty() ? CaseResult::unknown : losses.back()},
      {"gradient_error", result.max_gradient_error},
      {"loss_error", result.max_loss_error},
      {"attention_used", result.attention},
      {"transport_used", result.transport},
      {"identity", deck::identity(c)},
  };
  cells.insert(cells.end(), results.begin(), results.end());
  return cells;
}

Row make_row(const CaseResult& result, int number, int session) {
  Row row = empty_row();
  row.set(cells_of(result, number, session));
  row.set(result.found);
  return row;
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

void Row::set(const Cells& cells) {
  for (const auto& [name, value] : cells) {
    const auto at = std::ranges::find(columns, name, &Column::name);
    if (at == columns.end() || at->value.index() != value.index())
      throw LogicError(fmt::format("the summary has no column \"{}\" of this type", name));
    at->value = value;
  }
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
