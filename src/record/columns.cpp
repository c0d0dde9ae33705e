#include "record/columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "deck/sequences.hpp"
#include "record/verdict.hpp"

namespace minitaw::record {

namespace {

using V = const CaseView&;

Cell integer(std::uint64_t value) { return static_cast<std::int64_t>(value); }
Cell integer(std::int64_t value) { return value; }
Cell integer(int value) { return std::int64_t{value}; }

double mean(const std::vector<int>& values) {
  if (values.empty()) return std::nan("");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double loss(const CaseResult& result, bool last) {
  if (result.losses.empty()) return std::nan("");
  return last ? result.losses.back() : result.losses.front();
}

/// Errors are negative where nothing was compared.
double checked(double error) { return error < 0 ? std::nan("") : error; }

Cell exposed(V v, schedule::Traffic kind) { return v.summary.exposed_s[static_cast<std::size_t>(kind)]; }
/// Empty where all ranks have the same.
std::string sizes_text(const deck::Case& c) {
  return c.micro_batch_per_rank.empty() ? "" : deck::micro_batch_text(c);
}

std::vector<Column> make_columns() {
  return {
      {"case", "1", false, [](V v) { return integer(v.number); }},
      {"session", "1", false, [](V v) { return integer(v.session); }},
      {"status", "text", false, [](V v) -> Cell { return name_of(v.result.status); }},
      {"verdict", "text", false, [](V v) -> Cell { return verdict(v.result).text(); }},
      {"reason", "text", false, [](V v) -> Cell { return v.result.reason; }},
      {"started", "text", false, [](V v) -> Cell { return v.result.started; }},

      {"schedule", "text", true, [](V v) -> Cell { return v.result.settings.schedule; }},
      {"ranks", "1", true, [](V v) { return integer(v.result.settings.ranks); }},
      {"groups", "text", true, [](V v) -> Cell { return v.result.settings.groups.text(); }},
      {"group_count", "1", true, [](V v) { return integer(v.result.settings.groups.count()); }},
      {"replicas", "1", true, [](V v) { return integer(v.result.settings.replicas); }, 3},
      {"layers", "1", true, [](V v) { return integer(v.result.settings.shape.layers); }},
      {"hidden", "1", true, [](V v) { return integer(v.result.settings.shape.hidden); }},
      {"heads", "1", true, [](V v) { return integer(v.result.settings.shape.heads); }},
      {"kv_heads", "1", true, [](V v) { return integer(v.result.settings.shape.kv_heads); }},
      {"vocab", "1", true, [](V v) { return integer(v.result.settings.shape.vocab); }},
      {"ffn", "text", true, [](V v) -> Cell { return deck::ffn_text(v.result.settings.shape); }},
      {"parameters", "1", true, [](V v) { return integer(model::parameters(v.result.settings.shape)); }},
      {"dtype", "text", true, [](V v) -> Cell { return name_of(v.result.settings.shape.dtype); }},
      {"recompute", "text", true, [](V v) -> Cell { return name_of(v.result.settings.shape.recompute); }},
      {"seq", "token", true, [](V v) { return integer(v.result.settings.shape.seq); }},
      {"micro_batch", "sequence", true, [](V v) { return integer(v.result.settings.shape.micro_batch); }},
      {"micro_batch_per_rank", "text", true, [](V v) -> Cell { return sizes_text(v.result.settings); }, 3},
      {"micro_batches", "micro-batch", true, [](V v) { return integer(v.result.settings.micro_batches); }},
      {"steps", "step", true, [](V v) { return integer(v.result.settings.steps); }},
      {"repeats", "1", true, [](V v) { return integer(v.result.settings.repeats); }, 4},
      {"warmup", "step", true, [](V v) { return integer(v.result.settings.warmup); }},
      {"seed", "1", true, [](V v) { return integer(v.result.settings.seed); }},
      {"learning_rate", "1", true, [](V v) -> Cell { return v.result.settings.learning_rate; }},
      {"data", "text", true, [](V v) -> Cell { return v.result.settings.data; }},
      {"attention", "text", true, [](V v) -> Cell { return v.result.settings.attention; }, 2},
      {"transport", "text", true, [](V v) -> Cell { return v.result.settings.transport; }, 2},

      {"median_s", "s", false, [](V v) -> Cell { return v.summary.median_s; }},
      {"q1_s", "s", false, [](V v) -> Cell { return v.summary.q1_s; }},
      {"q3_s", "s", false, [](V v) -> Cell { return v.summary.q3_s; }},
      {"min_s", "s", false, [](V v) -> Cell { return v.summary.min_s; }},
      {"max_s", "s", false, [](V v) -> Cell { return v.summary.max_s; }},
      {"samples", "1", false, [](V v) { return integer(v.summary.samples); }, 4},
      {"cv", "1", false, [](V v) -> Cell { return v.summary.cv; }, 4},
      {"spread", "1", false, [](V v) -> Cell { return v.summary.spread; }, 4},
      {"tokens_per_s", "token/s", false, [](V v) -> Cell { return v.summary.tokens_per_s; }},
      {"tokens_per_s_rank", "token/s", false, [](V v) -> Cell { return v.summary.tokens_per_s_rank; }},
      {"tflops_causal", "TFLOP/s", false, [](V v) -> Cell { return v.summary.tflops_causal; }},
      {"tflops_full", "TFLOP/s", false, [](V v) -> Cell { return v.summary.tflops_full; }},
      {"memory_planned", "B", false, [](V v) { return integer(v.summary.memory_planned); }},
      {"memory_measured", "B", false, [](V v) { return integer(v.summary.memory_measured); }},
      {"process_peak", "B", false, [](V v) { return integer(v.summary.process_peak); }},
      {"device_used", "B", false, [](V v) { return integer(v.summary.device_used); }, 2},
      {"bytes_inside", "B", false, [](V v) { return integer(v.summary.bytes_inside); }},
      {"bytes_between", "B", false, [](V v) { return integer(v.summary.bytes_between); }},
      {"planned_inside", "B", false, [](V v) { return integer(v.summary.planned_inside); }},
      {"planned_between", "B", false, [](V v) { return integer(v.summary.planned_between); }},
      {"exposed_share", "1", false, [](V v) -> Cell { return v.summary.exposed_share; }},
      {"idle_share", "1", false, [](V v) -> Cell { return v.summary.bubble; }},
      {"compute_s", "s", false, [](V v) -> Cell { return v.summary.compute_s; }, 3},
      {"exposed_weights_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::weights); }, 3},
      {"exposed_gradients_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::gradients); }, 3},
      {"exposed_activations_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::activations); },
       3},
      {"exposed_ends_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::ends); }, 3},
      {"idle_s", "s", false, [](V v) -> Cell { return v.summary.idle_s; }, 3},
      {"bubble", "1", false, [](V v) -> Cell { return v.summary.bubble; }, 3},
      {"bubble_max", "1", false, [](V v) -> Cell { return v.summary.bubble_max; }, 3},
      {"overlap", "1", false, [](V v) -> Cell { return v.summary.overlap; }, 3},
      {"ticks", "tick", false, [](V v) { return integer(v.result.ticks); }},
      {"idle_ticks", "tick", false, [](V v) -> Cell { return mean(v.result.idle_ticks); }},
      {"first_loss", "nat/token", false, [](V v) -> Cell { return loss(v.result, false); }},
      {"last_loss", "nat/token", false, [](V v) -> Cell { return loss(v.result, true); }},
      {"gradient_error", "1", false, [](V v) -> Cell { return checked(v.result.max_gradient_error); }},
      {"loss_error", "1", false, [](V v) -> Cell { return checked(v.result.max_loss_error); }},
      {"attention_used", "text", false, [](V v) -> Cell { return v.result.attention; }, 2},
      {"transport_used", "text", false, [](V v) -> Cell { return v.result.transport; }, 2},
      {"counters", "text", false, [](V v) -> Cell { return v.result.counters; }, 4},
      {"energy_per_token", "J/token", false, [](V v) -> Cell { return v.summary.energy_per_token; }, 4},
      {"power_mean", "W", false, [](V v) -> Cell { return v.summary.power_mean; }, 4},
      {"clock_min", "MHz", false, [](V v) -> Cell { return v.summary.clock_min; }, 4},
      {"temperature_max", "degC", false, [](V v) -> Cell { return v.summary.temperature_max; }, 4},
      {"throttled", "1", false, [](V v) -> Cell { return v.summary.throttled; }, 4},
      {"identity", "text", true, [](V v) -> Cell { return deck::identity(v.result.settings); }},
  };
}

std::size_t index_of(std::string_view name) {
  const auto at = std::ranges::find(columns(), name, &Column::name);
  if (at == columns().end()) throw LogicError(fmt::format("the summary has no column \"{}\"", name));
  return static_cast<std::size_t>(at - columns().begin());
}

template <class T>
const T& get(const Row& row, std::string_view column) {
  if (const T* value = std::get_if<T>(&row.cell(column))) return *value;
  throw LogicError(fmt::format("column \"{}\" of the summary has another type", column));
}

}  // namespace

const std::vector<Column>& columns() {
  static const std::vector<Column> table = make_columns();
  return table;
}

std::string to_text(const Cell& cell) {
  return std::visit([](const auto& value) { return fmt::format("{}", value); }, cell);
}

const std::string& Row::text(std::string_view column) const { return get<std::string>(*this, column); }
std::int64_t Row::integer(std::string_view column) const { return get<std::int64_t>(*this, column); }
double Row::real(std::string_view column) const { return get<double>(*this, column); }
const Cell& Row::cell(std::string_view column) const { return cells_.at(index_of(column)); }

Row make_row(const CaseResult& result, int number, int session) {
  const CaseView view{result, summarise(result), number, session};
  std::vector<Cell> cells;
  for (const Column& column : columns()) cells.push_back(column.value(view));
  return Row(std::move(cells));
}

}  // namespace minitaw::record
