#include "record/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "base/error.hpp"
#include "deck/deck.hpp"

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

double tflops_of_rank(V v) { return v.summary.tflops_causal / v.result.settings.ranks; }
/// GB/s, all ranks together.
double rate(V v, std::uint64_t bytes) { return 1e-9 * static_cast<double>(bytes) / v.summary.median_s; }
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
      {"replicas", "1", true, [](V v) { return integer(v.result.settings.replicas); }},
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
      {"micro_batch_per_rank", "text", true, [](V v) -> Cell { return sizes_text(v.result.settings); }},
      {"micro_batches", "micro-batch", true, [](V v) { return integer(v.result.settings.micro_batches); }},
      {"steps", "step", true, [](V v) { return integer(v.result.settings.steps); }},
      {"repeats", "1", true, [](V v) { return integer(v.result.settings.repeats); }},
      {"warmup", "step", true, [](V v) { return integer(v.result.settings.warmup); }},
      {"seed", "1", true, [](V v) { return integer(v.result.settings.seed); }},
      {"learning_rate", "1", true, [](V v) -> Cell { return v.result.settings.learning_rate; }},
      {"data", "text", true, [](V v) -> Cell { return v.result.settings.data; }},
      {"attention", "text", true, [](V v) -> Cell { return v.result.settings.attention; }},
      {"transport", "text", true, [](V v) -> Cell { return v.result.settings.transport; }},

      {"median_s", "s", false, [](V v) -> Cell { return v.summary.median_s; }},
      {"q1_s", "s", false, [](V v) -> Cell { return v.summary.q1_s; }},
      {"q3_s", "s", false, [](V v) -> Cell { return v.summary.q3_s; }},
      {"min_s", "s", false, [](V v) -> Cell { return v.summary.min_s; }},
      {"max_s", "s", false, [](V v) -> Cell { return v.summary.max_s; }},
      {"samples", "1", false, [](V v) { return integer(v.summary.samples); }},
      {"cv", "1", false, [](V v) -> Cell { return v.summary.cv; }},
      {"spread", "1", false, [](V v) -> Cell { return v.summary.spread; }},
      {"tokens_per_s", "token/s", false, [](V v) -> Cell { return v.summary.tokens_per_s; }},
      {"tokens_per_s_rank", "token/s", false, [](V v) -> Cell { return v.summary.tokens_per_s_rank; }},
      {"tflops_causal", "TFLOP/s", false, [](V v) -> Cell { return v.summary.tflops_causal; }},
      {"tflops_full", "TFLOP/s", false, [](V v) -> Cell { return v.summary.tflops_full; }},
      {"tflops_rank", "TFLOP/s", false, [](V v) -> Cell { return tflops_of_rank(v); }},
      {"peak", "TFLOP/s", false, [](V v) -> Cell { return 1e-12 * v.result.peak; }},
      {"mfu", "1", false, [](V v) -> Cell { return 1e12 * tflops_of_rank(v) / v.result.peak; }},
      {"memory_planned", "B", false, [](V v) { return integer(v.summary.memory_planned); }},
      {"memory_measured", "B", false, [](V v) { return integer(v.summary.memory_measured); }},
      {"process_peak", "B", false, [](V v) { return integer(v.summary.process_peak); }},
      {"device_used", "B", false, [](V v) { return integer(v.summary.device_used); }},
      {"bytes_inside", "B", false, [](V v) { return integer(v.summary.bytes_inside); }},
      {"bytes_between", "B", false, [](V v) { return integer(v.summary.bytes_between); }},
      {"rate_inside", "GB/s", false, [](V v) -> Cell { return rate(v, v.summary.bytes_inside); }},
      {"rate_between", "GB/s", false, [](V v) -> Cell { return rate(v, v.summary.bytes_between); }},
      {"planned_inside", "B", false, [](V v) { return integer(v.summary.planned_inside); }},
      {"planned_between", "B", false, [](V v) { return integer(v.summary.planned_between); }},
      {"bytes_source", "text", false, [](V v) -> Cell { return v.result.bytes_source; }},
      {"exposed_share", "1", false, [](V v) -> Cell { return v.summary.exposed_share; }},
      {"idle_share", "1", false, [](V v) -> Cell { return v.summary.bubble; }},
      {"compute_s", "s", false, [](V v) -> Cell { return v.summary.compute_s; }},
      {"exposed_weights_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::weights); }},
      {"exposed_gradients_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::gradients); }},
      {"exposed_activations_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::activations); }},
      {"exposed_embeddings_s", "s", false, [](V v) { return exposed(v, schedule::Traffic::embeddings); }},
      {"idle_s", "s", false, [](V v) -> Cell { return v.summary.idle_s; }},
      {"bubble", "1", false, [](V v) -> Cell { return v.summary.bubble; }},
      {"bubble_max", "1", false, [](V v) -> Cell { return v.summary.bubble_max; }},
      {"overlap", "1", false, [](V v) -> Cell { return v.summary.overlap; }},
      {"ticks", "tick", false, [](V v) { return integer(v.result.ticks); }},
      {"idle_ticks", "tick", false, [](V v) -> Cell { return mean(v.result.idle_ticks); }},
      {"first_loss", "nat/token", false, [](V v) -> Cell { return loss(v.result, false); }},
      {"last_loss", "nat/token", false, [](V v) -> Cell { return loss(v.result, true); }},
      {"gradient_error", "1", false, [](V v) -> Cell { return checked(v.result.max_gradient_error); }},
      {"loss_error", "1", false, [](V v) -> Cell { return checked(v.result.max_loss_error); }},
      {"attention_used", "text", false, [](V v) -> Cell { return v.result.attention; }},
      {"transport_used", "text", false, [](V v) -> Cell { return v.result.transport; }},
      {"counters", "text", false, [](V v) -> Cell { return v.result.counters; }},
      {"energy_per_token", "J/token", false, [](V v) -> Cell { return v.summary.energy_per_token; }},
      {"power_mean", "W", false, [](V v) -> Cell { return v.summary.power_mean; }},
      {"clock_min", "MHz", false, [](V v) -> Cell { return v.summary.clock_min; }},
      {"temperature_max", "degC", false, [](V v) -> Cell { return v.summary.temperature_max; }},
      {"throttled", "1", false, [](V v) -> Cell { return v.summary.throttled; }},
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

namespace {

std::string describe(const Row& row) {
  return fmt::format("{}, {} ranks in groups {}, {} tokens", row.text("schedule"), row.integer("ranks"),
                     row.text("groups"), row.integer("seq"));
}

const Row* fastest(const std::vector<Row>& rows) {
  const Row* best = nullptr;
  for (const Row& row : rows)
    if (is_valid(row) && (best == nullptr || row.real("tokens_per_s") > best->real("tokens_per_s")))
      best = &row;
  return best;
}

std::string why_invalid(const CaseResult& result) {
  const deck::Case& c = result.settings;
  if (result.status != Status::ok)
    return fmt::format("{}{}{}", name_of(result.status), result.reason.empty() ? "" : ": ", result.reason);
  if (std::ssize(result.position) < c.repeats)
    return fmt::format("{} of {} repetitions", result.position.size(), c.repeats);
  if (std::ssize(result.seconds) < least_samples)
    return fmt::format("{} timed steps, at least {} are needed", result.seconds.size(), least_samples);
  if (result.counted_bytes != result.planned_bytes) return "the bytes counted are not those planned";
  return "";
}

std::string doubt_of(const CaseResult& result) {
  std::vector<std::string> doubts;
  if (result.settings.warmup == 0) doubts.emplace_back("no warm-up");
  const double spread = summarise(result).spread;
  if (spread > widest_spread)
    doubts.push_back(fmt::format("noisy: quartiles {:.0f} % of the median apart", 100 * spread));
  return fmt::format("{}", fmt::join(doubts, "; "));
}

/// What stands in brackets behind VALID.
std::string doubt_in(const Row& row) {
  if (!is_valid(row)) return "";
  const std::string& text = row.text("verdict");
  const std::size_t open = text.find('('), close = text.rfind(')');
  return open < close && close != std::string::npos ? text.substr(open + 1, close - open - 1) : "";
}

/// "2 of 6 cases, first case 3 (tawpipe, ...): reason"; empty if there is none.
template <class Holds, class Reason>
std::string first_of(const std::vector<Row>& rows, const Holds& holds, const Reason& reason) {
  const auto first = std::ranges::find_if(rows, holds);
  if (first == rows.end()) return "";
  return fmt::format("{} of {} cases, first case {} ({}): {}", std::ranges::count_if(rows, holds),
                     rows.size(), first->integer("case"), describe(*first), reason(*first));
}

std::string reason_in(const Row& row) {
  const std::string& text = row.text("verdict");
  return text.substr(std::min<std::size_t>(9, text.size()));
}

}  // namespace

std::string Verdict::text() const {
  if (!valid()) return "INVALID: " + reason;
  return doubt.empty() ? "VALID" : fmt::format("VALID ({})", doubt);
}

bool is_valid(const Row& row) { return row.text("verdict").starts_with("VALID"); }

Verdict verdict(const CaseResult& result) {
  const std::string reason = why_invalid(result);
  return {reason, reason.empty() ? doubt_of(result) : ""};
}

Verdict verdict(const std::vector<Row>& rows) {
  if (rows.empty()) return {"no case was run", ""};
  const auto invalid = [](const Row& row) { return !is_valid(row); };
  const auto doubtful = [](const Row& row) { return !doubt_in(row).empty(); };
  return {first_of(rows, invalid, reason_in), first_of(rows, doubtful, doubt_in)};
}

Verdict verdict(const std::vector<Row>& rows, const Missing& missing) {
  if (missing.cases == 0) return verdict(rows);
  return {fmt::format("{} case{} left, {}; the same command goes on with {}", missing.cases,
                      missing.cases == 1 ? " is" : "s are", missing.why, missing.cases == 1 ? "it" : "them"),
          ""};
}

std::string closing_text(const std::vector<Row>& rows, const Missing& missing) {
  const Row* best = fastest(rows);
  const std::string merit =
      best ? fmt::format("{:.6g} tokens/s ({})", best->real("tokens_per_s"), describe(*best)) : "none";
  return fmt::format("figure of merit: {}\nRESULT: {}\n", merit, verdict(rows, missing).text());
}

std::string to_json(const std::vector<Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < columns().size(); ++i) {
      const Column& column = columns()[i];
      const bool plain = column.units == "1" || column.units == "text";
      const std::string title = plain ? column.name : fmt::format("{} [{}]", column.name, column.units);
      std::visit([&](const auto& cell) { object[title] = cell; }, row.cells()[i]);
    }
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

namespace {

std::string number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

/// Four significant digits without an exponent for what steps and rates usually are.
std::string figure(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const int digits = 3 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(digits, 0, 7));
}

std::string mebibytes(const Row& row, std::string_view column) {
  return figure(static_cast<double>(row.integer(column)) / (1024.0 * 1024.0));
}

std::string percent(const Row& row, std::string_view column) { return number(100 * row.real(column), 1); }

std::string integer(const Row& row, std::string_view column) {
  return fmt::format("{}", row.integer(column));
}

/// Largest error against the serial reference; "-" if the case was not checked.
std::string error(double value) { return std::isnan(value) ? "-" : fmt::format("{:.0e}", value); }

int widest(const std::vector<Row>& rows, std::string_view column) {
  std::size_t width = column.size();
  for (const Row& row : rows) width = std::max(width, row.text(column).size());
  return static_cast<int>(width);
}

std::string align(const std::string& text, int width) {
  return width < 0 ? fmt::format("{:<{}}", text, -width) : fmt::format("{:>{}}", text, width);
}

/// "2", or "1..3" where ranks differ.
std::string micro_batch(const Row& row) {
  const std::string& sizes = row.text("micro_batch_per_rank");
  if (sizes.empty()) return integer(row, "micro_batch");
  std::int64_t least = row.integer("micro_batch"), size = 0;
  std::istringstream list(sizes);
  for (char comma = 0; list >> size; list >> comma) least = std::min(least, size);
  return fmt::format("{}..{}", least, integer(row, "micro_batch"));
}

std::string ranks(const Row& row) {
  return deck::ranks_text(static_cast<int>(row.integer("ranks")), static_cast<int>(row.integer("replicas")));
}

int widest_micro_batch(const std::vector<Row>& rows) {
  std::size_t width = 3;
  for (const Row& row : rows) width = std::max(width, micro_batch(row).size());
  return static_cast<int>(width);
}

}  // namespace

Table::Table(const std::vector<Row>& rows)
    : fields_{
          {"case", "", 5, [](const Row& r) { return integer(r, "case"); }},
          {"schedule", "", -widest(rows, "schedule"), [](const Row& r) { return r.text("schedule"); }},
          {"ranks", "", 5, ranks},
          {"groups", "", -widest(rows, "groups"), [](const Row& r) { return r.text("groups"); }},
          {"seq", "token", 7, [](const Row& r) { return integer(r, "seq"); }},
          {"B", "", widest_micro_batch(rows), micro_batch},
          {"M", "", 4, [](const Row& r) { return integer(r, "micro_batches"); }},
          {"step", "s", 9, [](const Row& r) { return figure(r.real("median_s")); }},
          {"q1", "s", 9, [](const Row& r) { return figure(r.real("q1_s")); }},
          {"q3", "s", 9, [](const Row& r) { return figure(r.real("q3_s")); }},
          {"rate", "token/s", 9, [](const Row& r) { return figure(r.real("tokens_per_s")); }},
          {"rank", "TFLOP/s", 9, [](const Row& r) { return figure(r.real("tflops_rank")); }},
          {"MFU", "%", 5, [](const Row& r) { return percent(r, "mfu"); }},
          {"memory", "MiB", 9, [](const Row& r) { return mebibytes(r, "memory_measured"); }},
          {"inside", "MiB/step", 9, [](const Row& r) { return mebibytes(r, "bytes_inside"); }},
          {"between", "MiB/step", 9, [](const Row& r) { return mebibytes(r, "bytes_between"); }},
          {"inside", "GB/s", 9, [](const Row& r) { return figure(r.real("rate_inside")); }},
          {"between", "GB/s", 9, [](const Row& r) { return figure(r.real("rate_between")); }},
          {"bytes", "", -10, [](const Row& r) { return r.text("bytes_source"); }},
          {"exposed", "%", 7, [](const Row& r) { return percent(r, "exposed_share"); }},
          {"bubble", "%", 6, [](const Row& r) { return percent(r, "idle_share"); }},
          {"overlap", "%", 7, [](const Row& r) { return percent(r, "overlap"); }},
          {"loss0", "nat", 8, [](const Row& r) { return number(r.real("first_loss"), 4); }},
          {"loss", "nat", 8, [](const Row& r) { return number(r.real("last_loss"), 4); }},
          {"check", "", 7, [](const Row& r) { return error(r.real("gradient_error")); }},
          {"status", "", -6, [](const Row& r) { return r.text("status"); }},
      } {}

std::string Table::header() const {
  std::string names = "#";
  std::string units = "#";
  for (const Field& field : fields_) {
    names += " " + align(field.name, field.width);
    units += " " + align(field.units, field.width);
  }
  return names + "\n" + units.substr(0, units.find_last_not_of(' ') + 1) + "\n";
}

std::string Table::row(const Row& row) const {
  std::string line = " ";
  for (const Field& field : fields_) line += " " + align(field.value(row), field.width);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::vector<Row> preview(const std::vector<deck::Case>& cases) {
  std::vector<Row> rows;
  for (const deck::Case& c : cases) {
    CaseResult result;
    result.settings = c;
    rows.push_back(make_row(result));
  }
  return rows;
}

std::string settings_text(const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const Column& column = columns()[i];
    if (!column.setting || column.name == "identity" || column.name == "group_count") continue;
    std::vector<std::string> values;
    for (const Row& row : rows) {
      std::string value = to_text(row.cells()[i]);
      if (std::ranges::find(values, value) == values.end()) values.push_back(std::move(value));
    }
    if (values == std::vector<std::string>{""}) continue;
    const bool plain = column.units == "1" || column.units == "text";
    text += fmt::format("# {:<13} = {}{}{}\n", column.name, fmt::join(values, ", "), plain ? "" : " ",
                        plain ? "" : column.units);
  }
  return text;
}

std::string whole_text(const std::vector<Row>& rows) {
  const Table table(rows);
  std::string text = settings_text(rows) + table.header();
  for (const Row& row : rows) text += table.row(row);
  return text + closing_text(rows);
}

}  // namespace minitaw::record
