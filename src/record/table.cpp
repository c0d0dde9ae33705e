// SPDX-License-Identifier: BSD-3-Clause
#include "record/table.hpp"
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include "base/error.hpp"
#include "record/layout.hpp"

namespace minitaw::record {
std::vector<std::string> varying_settings(const std::vector<Row>& rows) {
  constexpr std::array derived = {"identity", "group_count", "parameters"};
  constexpr std::array follow_hidden = {"heads", "kv_heads", "ffn"};
  std::vector<std::string> names;
  for (std::size_t i = 0; !rows.empty() && i < rows.front().columns.size(); ++i) {
    const Column& column = rows.front().columns[i];
    if (!column.is_setting || std::ranges::find(derived, column.name) != derived.end())
      continue;
    const bool follows = std::ranges::find(follow_hidden, column.name) != follow_hidden.end();
    std::map<std::int64_t, std::string> value_of;  // by hidden, or one for all
    if (std::ranges::any_of(rows, [&](const Row& row) {
          const std::string text = row.columns[i].text();
          return value_of.try_emplace(follows ? row.integer("hidden") : 0, text).first->second !=
                 text;
        }))
      names.push_back(column.name);
  }
  return names;
}

namespace {
/// "tawpipe, 4 ranks in groups 2+2, 1024 tokens, hidden 256": what else varies among `rows` comes
/// last.
std::string describe(const Row& row, const std::vector<Row>& rows) {
  std::string text = fmt::format("{}, {} in groups {}, {}",
      row.text("schedule"),
      counted(row.integer("ranks"), "rank"),
      row.text("groups"),
      counted(row.integer("seq"), "token"));
  constexpr std::array said = {"schedule", "ranks", "groups", "seq"};
  for (const std::string_view name : varying_settings(rows))
    if (std::ranges::find(said, name) == said.end())
      text += fmt::format(", {} {}", name, row.column(name).text());
  return text;
}

/// The doubt after VALID or the reason after INVALID; empty if there is none.
std::string detail_of(const Row& row) {
  const std::string& text = row.text("verdict");
  const std::size_t begin = text.find_first_of("(:");
  if (begin == std::string::npos)
    return "";
  return text[begin] == '(' ? text.substr(begin + 1, text.size() - begin - 2)
                            : text.substr(begin + 2);
}

/// Rates of different models cannot be compared.
std::string model_of(const Row& row) {
  std::string model;
  for (const char* name : {"layers", "hidden", "heads", "kv_heads", "vocab", "ffn"})
    model += row.column(name).text() + " ";
  return model;
}

/// The rate of the fastest valid case of a model, where asked for of those without a doubt, and
/// which it is.
std::string merit_text(const std::vector<Row>& rows, const std::string& model, bool quiet) {
  const Row* best = nullptr;
  for (const Row& row : rows)
    if (model_of(row) == model && is_valid(row.text("verdict")) &&
        !(quiet && !detail_of(row).empty()) &&
        (best == nullptr || row.real("tokens_per_s") > best->real("tokens_per_s")))
      best = &row;
  if (best == nullptr)
    return "none";
  const std::string text =
      fmt::format("{:.6g} tokens/s ({})", best->real("tokens_per_s"), describe(*best, rows));
  if (detail_of(*best).empty())
    return text;
  return fmt::format(
      "{}, {}; best without doubt: {}", text, detail_of(*best), merit_text(rows, model, true));
}

std::string ranks(const Row& row) {
  return ranks_text(
      static_cast<int>(row.integer("ranks")), static_cast<int>(row.integer("replicas")));
}

/// The summary's column of this name, shown like this.
TableColumn<Row> of(std::string name, TableColumn<Row> shown) {
  shown.value = [name](const Row& row) { return row.column(name).value; };
  shown.name = std::move(name);
  return shown;
}

std::vector<TableColumn<Row>> all_columns() {
  constexpr Format loss{.style = Format::fixed, .decimals = 4};
  constexpr Format error{.style = Format::scientific, .decimals = 0};
  constexpr std::array narrow = {"case",
      "schedule",
      "median_s",
      "tokens_per_s",
      "memory_measured",
      "exposed_share",
      "idle_share",
      "status"};
  std::vector<TableColumn<Row>> columns = {of("case", {.title = "case", .width = 5}),
      of("schedule", {.title = "schedule", .width = -8}),
      {.title = "ranks", .value = ranks, .width = 5, .name = "ranks"},
      of("groups", {.title = "groups", .width = -6}),
      of("seq", {.title = "seq", .units = "token", .width = 7}),
      of("micro_batch", {.title = "B", .width = 3}),
      of("micro_batches", {.title = "M", .width = 4}),
      of("median_s", {.title = "step", .units = "s", .width = 9}),
      of("q1_s", {.title = "q1", .units = "s", .width = 9}),
      of("q3_s", {.title = "q3", .units = "s", .width = 9}),
      of("tokens_per_s", {.title = "rate", .units = "token/s", .width = 9}),
      of("tflops_rank", {.title = "rank", .units = "TFLOP/s", .width = 9}),
      of("mfu", {.title = "MFU", .units = "%", .format = as_percent, .width = 5}),
      of("memory_measured",
          {.title = "memory", .units = "MiB", .format = as_mebibytes, .width = 9}),
      of("bytes_inside",
          {.title = "inside", .units = "MiB/step", .format = as_mebibytes, .width = 9}),
      of("bytes_between",
          {.title = "between", .units = "MiB/step", .format = as_mebibytes, .width = 9}),
      of("exposed_share", {.title = "exposed", .units = "%", .format = as_percent, .width = 7}),
      of("idle_share", {.title = "idle", .units = "%", .format = as_percent, .width = 6}),
      of("overlap", {.title = "overlap", .units = "%", .format = as_percent, .width = 7}),
      of("first_loss", {.title = "loss0", .units = "nat", .format = loss, .width = 8}),
      of("last_loss", {.title = "loss", .units = "nat", .format = loss, .width = 8}),
      of("gradient_error", {.title = "check", .format = error, .width = 7}),
      of("status", {.title = "status", .width = -6})};
  for (TableColumn<Row>& column : columns)
    column.wide = std::ranges::find(narrow, column.name) == narrow.end();
  return columns;
}
}  // namespace

bool is_valid(const std::string& verdict) {
  return verdict.starts_with("VALID");
}

std::string verdict(const std::vector<Row>& rows, const Missing& missing) {
  if (missing.cases > 0)
    return fmt::format("INVALID: unfinished cases: {} ({}); the same command continues",
        missing.cases,
        missing.why);
  if (rows.empty())
    return "INVALID: no case was run";
  for (const bool valid : {false, true}) {
    const auto is_told = [&](const Row& r) {
      return is_valid(r.text("verdict")) == valid && !detail_of(r).empty();
    };
    const auto first = std::ranges::find_if(rows, is_told);
    if (first == rows.end())
      continue;
    return fmt::format("{}{} of {}, first case {} ({}): {}{}",
        valid ? "VALID (" : "INVALID: ",
        std::ranges::count_if(rows, is_told),
        counted(std::ssize(rows), "case"),
        first->integer("case"),
        describe(*first, rows),
        detail_of(*first),
        valid ? ")" : "");
  }
  return "VALID";
}

std::vector<std::string> figures_of_merit(const std::vector<Row>& rows) {
  std::vector<std::string> figures;
  std::set<std::string> models;
  for (const Row& row : rows)
    if (const std::string model = model_of(row); models.insert(model).second)
      figures.push_back(merit_text(rows, model, false));
  return figures.empty() ? std::vector<std::string>{"none"} : figures;
}

/// What the verdict stands on, and who judges the rest; empty if no case was executed.
static std::string judged_text(const std::vector<Row>& rows) {
  std::ptrdiff_t executed = 0, checked = 0;
  for (const Row& row : rows) {
    const std::string& status = row.text("status");
    if (status != name_of(Status::ok) && status != name_of(Status::wrong))
      continue;
    ++executed;
    checked += std::isnan(row.real("gradient_error")) ? 0 : 1;
  }
  if (executed == 0)
    return "";
  return fmt::format(
      "# judged: bytes and memory beside their plan in {}, loss and gradients of the first step "
      "beside a serial reference in {}; later steps: minitaw verify, speed: scripts/compare\n",
      counted(executed, "case"),
      checked);
}

std::string closing_text(
    const std::vector<Row>& rows, const Extensions& extensions, const Missing& missing) {
  std::string text;
  for (const Extension& extension : extensions)
    if (const std::string said = extension.sentence ? extension.sentence(rows) : ""; !said.empty())
      text += fmt::format("# {}\n", said);
  text += judged_text(rows);
  if (std::ranges::any_of(
          rows, [](const Row& row) { return row.text("bytes_source") == "by formula"; }))
    text += "# bytes of NCCL's collectives are by formula: NCCL does not tell which way they go\n";
  for (const std::string& figure : figures_of_merit(rows))
    text += fmt::format("figure of merit: {}\n", figure);
  return text + fmt::format("RESULT: {}\n", verdict(rows, missing));
}

std::string to_json(const std::vector<Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json object;
    for (const Column& column : row.columns)
      std::visit([&](const auto& cell) { object[column.name] = cell; }, column.value);
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// In quotes where it holds a comma, a quote or a line break.
static std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string quoted = "\"";
  for (const char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string to_csv(const std::vector<Row>& rows) {
  const auto title = [](const Column& column) {
    return column.has_unit() ? fmt::format("{} [{}]", column.name, column.units) : column.name;
  };
  const auto field = [](const Column& column) {
    const auto* real = std::get_if<double>(&column.value);
    return real != nullptr && std::isnan(*real) ? std::string() : csv_field(column.text());
  };
  std::string text = fmt::format("{}\n", fmt::join(list_of(empty_row().columns, title), ","));
  for (const Row& row : rows)
    text += fmt::format("{}\n", fmt::join(list_of(row.columns, field), ","));
  return text;
}

TextTable<Row> make_table(const std::vector<Row>& rows, bool narrow) {
  std::vector<TableColumn<Row>> columns = all_columns();
  auto at = std::ranges::find(columns, "seq", &TableColumn<Row>::name);
  for (const std::string_view setting : varying_settings(rows)) {
    const std::string name(setting == "replicas" ? "ranks" : setting);  // "2x3"
    const auto known = std::ranges::find(columns, name, &TableColumn<Row>::name);
    if (known != columns.end())
      known->wide = false;
    else
      at = columns.insert(at, of(name, {.title = name})) + 1;
  }
  return {std::move(columns), rows, narrow};
}

std::string settings_text(const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t i = 0; !rows.empty() && i < rows.front().columns.size(); ++i) {
    const Column& column = rows.front().columns[i];
    if (!column.is_setting || column.name == "identity" || column.name == "group_count")
      continue;
    std::vector<std::string> values;
    for (const Row& row : rows) {
      std::string value = row.columns[i].text();
      if (std::ranges::find(values, value) == values.end())
        values.push_back(std::move(value));
    }
    if (values == std::vector<std::string>{""})
      continue;
    text += fmt::format("# {:<13} = {}{}{}\n",
        column.name,
        fmt::join(values, ", "),
        column.has_unit() ? " " : "",
        column.has_unit() ? column.units : "");
  }
  return text;
}
}  // namespace minitaw::record
