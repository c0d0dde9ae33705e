// SPDX-License-Identifier: BSD-3-Clause
#include "record/table.hpp"
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include "base/error.hpp"

namespace minitaw::record {
std::vector<std::string_view> varying_settings(const std::vector<Row>& rows) {
  constexpr std::array derived = {"identity", "group_count", "parameters"};
  constexpr std::array follow_hidden = {"heads", "kv_heads", "ffn"};
  std::vector<std::string_view> names;
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

/// The doubt behind VALID or the reason behind INVALID; empty if there is none.
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

std::string number(double v, int digits) {
  return std::isfinite(v) ? fmt::format("{:.{}f}", v, digits) : "-";
}

std::string mebibytes(const Row& row, std::string_view column) {
  return figure(static_cast<double>(row.integer(column)) / (1024.0 * 1024.0));
}

std::string percent(const Row& row, std::string_view column) {
  return number(100 * row.real(column), 1);
}

std::string integer(const Row& row, std::string_view column) {
  return fmt::format("{}", row.integer(column));
}

/// Largest error against the serial reference; "-" if the case was not checked.
std::string error(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.0e}", value);
}

/// "2", or "1..3" where ranks differ.
std::string micro_batch(const Row& row) {
  const std::string& sizes = row.text("micro_batch_per_rank");
  if (sizes.empty())
    return integer(row, "micro_batch");
  std::int64_t least = row.integer("micro_batch"), size = 0;
  std::istringstream list(sizes);
  for (char comma = 0; list >> size; list >> comma)
    least = std::min(least, size);
  return fmt::format("{}..{}", least, integer(row, "micro_batch"));
}

std::string ranks(const Row& row) {
  return ranks_text(
      static_cast<int>(row.integer("ranks")), static_cast<int>(row.integer("replicas")));
}

/// "counted", or "formula" without its "by": a field is a word.
std::string bytes_text(const Row& row) {
  const std::string& source = row.text("bytes_source");
  return source.empty() ? "-" : source.substr(source.rfind(' ') + 1);
}

/// Every column; a narrow line lacks the most spare ones first.
std::vector<TextColumn<Row>> all_columns() {
  return {
      {"case", "", 5, [](const Row& r) { return integer(r, "case"); }},
      {"schedule", "", -8, [](const Row& r) { return r.text("schedule"); }},
      {"ranks", "", 5, ranks, 6},
      {"groups", "", -6, [](const Row& r) { return r.text("groups"); }, 7},
      {"seq", "token", 7, [](const Row& r) { return integer(r, "seq"); }, 5},
      {"B", "", 3, micro_batch, 13},
      {"M", "", 4, [](const Row& r) { return integer(r, "micro_batches"); }, 12},
      {"step", "s", 9, [](const Row& r) { return figure(r.real("median_s")); }},
      {"q1", "s", 9, [](const Row& r) { return figure(r.real("q1_s")); }, 17},
      {"q3", "s", 9, [](const Row& r) { return figure(r.real("q3_s")); }, 16},
      {"rate", "token/s", 9, [](const Row& r) { return figure(r.real("tokens_per_s")); }},
      {"rate/rank",
          "token/s",
          9,
          [](const Row& r) { return figure(r.real("tokens_per_s_rank")); },
          11},
      {"rank", "TFLOP/s", 9, [](const Row& r) { return figure(r.real("tflops_rank")); }, 15},
      {"MFU", "%", 5, [](const Row& r) { return percent(r, "mfu"); }, 14},
      {"memory", "MiB", 9, [](const Row& r) { return mebibytes(r, "memory_measured"); }},
      {"inside", "MiB/step", 9, [](const Row& r) { return mebibytes(r, "bytes_inside"); }, 4},
      {"between", "MiB/step", 9, [](const Row& r) { return mebibytes(r, "bytes_between"); }, 1},
      {"inside", "GB/s", 9, [](const Row& r) { return figure(r.real("rate_inside")); }, 20},
      {"between", "GB/s", 9, [](const Row& r) { return figure(r.real("rate_between")); }, 19},
      {"bytes", "", 8, bytes_text, 21},
      {"exposed", "%", 7, [](const Row& r) { return percent(r, "exposed_share"); }, 2},
      {"idle", "%", 6, [](const Row& r) { return percent(r, "idle_share"); }, 3},
      {"overlap", "%", 7, [](const Row& r) { return percent(r, "overlap"); }, 10},
      {"loss0", "nat", 8, [](const Row& r) { return number(r.real("first_loss"), 4); }, 18},
      {"loss", "nat", 8, [](const Row& r) { return number(r.real("last_loss"), 4); }, 9},
      {"check", "", 7, [](const Row& r) { return error(r.real("gradient_error")); }, 8},
      {"status", "", -6, [](const Row& r) { return r.text("status"); }},
  };
}

TextColumn<Row> summary_column(const Row& sample, const std::string& name) {
  const Column& column = sample.column(name);
  const auto cell = [name](const Row& r) {
    const auto* real = std::get_if<double>(&r.column(name).value);
    return real != nullptr ? figure(*real) : r.column(name).text();
  };
  return {name, column.has_unit() ? std::string(column.units) : "", 0, cell};
}

/// Case, schedule, and the columns of these names.
std::vector<TextColumn<Row>> chosen_columns(const std::vector<std::string>& names) {
  const std::vector<TextColumn<Row>> all = all_columns();
  const Row sample = empty_row();
  std::vector<TextColumn<Row>> chosen(all.begin(), all.begin() + 2);
  std::vector<std::string> known = list_of(all, &TextColumn<Row>::name);
  for (const Column& column : sample.columns)
    known.emplace_back(column.name);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end())
      throw InputError(fmt::format(
          "--columns: there is no column \"{}\"{} (docs/results.md lists those of the summary)",
          name,
          did_you_mean(name, known)));
    if (std::ranges::count(sample.columns, name, &Column::name) > 0)
      chosen.push_back(summary_column(sample, name));
    else
      std::ranges::copy_if(
          all, std::back_inserter(chosen), [&](const auto& column) { return column.name == name; });
  }
  return chosen;
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

/// Memory of the case that has allocated most, each figure of its worst rank, with its source;
/// empty without cases.
static std::string memory_text(const std::vector<Row>& rows) {
  const auto allocated = [](const Row& row) { return row.integer("memory_measured"); };
  const auto most = std::ranges::max_element(rows, {}, allocated);
  if (most == rows.end() || allocated(*most) == 0)
    return "";
  std::string text =
      fmt::format("# most memory: case {}, {} MiB allocated through Kokkos, {} planned",
          most->integer("case"),
          mebibytes(*most, "memory_measured"),
          mebibytes(*most, "memory_planned"));
  if (most->integer("process_begin") > 0)
    text += fmt::format("; process {} MiB at its peak, {} before the case",
        mebibytes(*most, "process_peak"),
        mebibytes(*most, "process_begin"));
  if (most->integer("device_used") > 0)
    text += fmt::format("; device {} MiB in use", mebibytes(*most, "device_used"));
  return text + "\n";
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
      "beside a "
      "serial reference in {}; later steps: minitaw verify, speed: scripts/compare\n",
      counted(executed, "case"),
      checked);
}

std::string closing_text(
    const std::vector<Row>& rows, const Extensions& extensions, const Missing& missing) {
  std::string text;
  for (const Extension& extension : extensions)
    if (extension.sentences)
      for (const std::string& sentence : extension.sentences(rows))
        text += fmt::format("# {}\n", sentence);
  text += memory_text(rows) + judged_text(rows);
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
      std::visit([&](const auto& cell) { object[std::string(column.name)] = cell; }, column.value);
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string figure(double value, int most_decimals) {
  if (!std::isfinite(value))
    return "-";
  if (value == 0)
    return "0";
  const int decimals = 3 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(decimals, 0, most_decimals));
}

std::string aligned(const std::string& text, int width) {
  return width < 0 ? fmt::format("{:<{}}", text, -width) : fmt::format("{:>{}}", text, width);
}

TextTable<Row> make_table(const std::vector<Row>& rows, const TableLayout& layout) {
  if (!layout.columns.empty())
    return {chosen_columns(layout.columns), rows};
  std::vector<TextColumn<Row>> columns = all_columns();
  const std::vector<std::string_view> varying = varying_settings(rows);
  const std::map<std::string_view, std::string_view> settings = {{"schedule", "schedule"},
      {"ranks", "ranks"},
      {"groups", "groups"},
      {"replicas", "ranks"},
      {"seq", "seq"},
      {"micro_batch", "B"},
      {"micro_batches", "M"}};
  auto at = std::ranges::find(columns, "seq", &TextColumn<Row>::name);
  std::set<std::string_view> told;  // apart from others by these columns
  for (const std::string_view name : varying) {
    if (const auto shown = settings.find(name); shown != settings.end()) {
      told.insert(shown->second);
      continue;
    }
    at = columns.insert(at,
             {std::string(name), "", 0, [name](const Row& r) { return r.column(name).text(); }}) +
         1;
  }
  if (layout.width > 0)
    std::erase_if(columns, [&](const TextColumn<Row>& column) {
      return column.name != "schedule" && !told.contains(column.name) &&
             std::ranges::any_of(
                 settings, [&](const auto& one) { return one.second == column.name; });
    });
  return {columns, rows, layout.width};
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
