// SPDX-License-Identifier: BSD-3-Clause
#include "record/verdict.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include "base/error.hpp"

namespace minitaw::record {
std::string verdict_of(const MeasuredRun& run) {
  const CaseResult& r = run.result;
  if (r.status != Status::ok)
    return fmt::format(
        "INVALID: {}{}{}", name_of(r.status), r.reason.empty() ? "" : ": ", r.reason);
  if (std::ssize(run.samples) < least_samples)
    return fmt::format("INVALID: {}, at least {} are needed",
        counted(std::ssize(run.samples), "timed step"),
        least_samples);
  const auto as_planned = [](const LinkBytes& link) { return link.counted == link.planned; };
  if (!std::ranges::all_of(r.bytes, as_planned))
    return "INVALID: the bytes counted are not those planned";
  std::vector<std::string> doubts;
  if (r.asked.warmup == 0)
    doubts.emplace_back("no warm-up");
  if (run.spread > widest_spread)
    doubts.push_back(
        fmt::format("noisy: quartiles {:.0f} % of the median apart", 100 * run.spread));
  return doubts.empty() ? "VALID" : fmt::format("VALID ({})", fmt::join(doubts, "; "));
}

bool is_valid(const std::string& verdict) {
  return verdict.starts_with("VALID");
}

namespace {
/// The doubt after VALID or the reason after INVALID; empty if there is none.
std::string detail_of(const std::string& verdict) {
  const std::size_t begin = verdict.find_first_of("(:");
  if (begin == std::string::npos)
    return "";
  return verdict[begin] == '(' ? verdict.substr(begin + 1, verdict.size() - begin - 2)
                               : verdict.substr(begin + 2);
}

/// "tawpipe, 4 ranks in groups 2+2, 1024 tokens, hidden 256": what else varies among `rows` comes
/// last.
std::string describe(const Row& row, const std::vector<Row>& rows) {
  std::string text = fmt::format("{}, {} in groups {}, {}",
      row.text("schedule"),
      counted(row.integer("ranks"), "rank"),
      row.text("groups"),
      counted(row.integer("seq"), "token"));
  const std::set<std::string_view> said = {"schedule", "ranks", "groups", "seq"};
  for (const std::string& name : varying_settings(rows))
    if (!said.contains(name))
      text += fmt::format(", {} {}", name, to_text(row.cell(name)));
  return text;
}

/// Rates of different models cannot be compared.
std::string model_of(const Row& row) {
  std::string model;
  for (const char* name :
      {"layers", "hidden", "heads", "head_dim", "kv_heads", "vocab", "tied", "ffn"})
    model += to_text(row.cell(name)) + " ";
  return model;
}

/// The fastest valid case of a model, where asked for of those without a doubt. nullptr: none.
const CaseRuns* best_of(
    const std::vector<CaseRuns>& cases, const std::string& model, bool without_doubt) {
  const CaseRuns* best = nullptr;
  for (const CaseRuns& one : cases) {
    const std::string verdict = one.verdict();
    if (model_of(one.last()) == model && is_valid(verdict) &&
        !(without_doubt && !detail_of(verdict).empty()) &&
        (best == nullptr || one.tokens_per_s() > best->tokens_per_s()))
      best = &one;
  }
  return best;
}

/// Says what the verdict stands on, and who judges the rest; empty if no case was executed.
std::string judged_text(const std::vector<CaseRuns>& cases) {
  std::ptrdiff_t executed = 0, checked = 0;
  for (const CaseRuns& one : cases) {
    if (!one.ended_ok() && one.last().text("status") != name_of(Status::wrong))
      continue;
    ++executed;
    checked += std::isnan(one.last().real("gradient_error")) ? 0 : 1;
  }
  if (executed == 0)
    return "";
  return fmt::format(
      "# judged: bytes and memory beside their plan in {}, loss and gradients of the first step "
      "beside a serial reference in {}; later steps: minitaw verify, speed: scripts/compare\n",
      counted(executed, "case"),
      checked);
}
}  // namespace

std::vector<CaseRuns> by_case(const std::vector<Row>& rows) {
  std::map<std::int64_t, std::map<std::int64_t, const Row*>> last;
  for (const Row& row : rows)
    last[row.integer("case")][row.integer("repetition")] = &row;
  std::vector<CaseRuns> cases;
  for (const auto& [number, repetitions] : last) {
    cases.emplace_back();
    for (const auto& [repetition, row] : repetitions)
      cases.back().runs.push_back(row);
  }
  return cases;
}

bool CaseRuns::has_ended() const {
  return !ended_ok() || std::ssize(runs) >= last().integer("repeats");
}

std::string CaseRuns::verdict() const {
  std::string found = "VALID";
  for (const Row* run : runs) {
    const std::string& of_run = run->text("verdict");
    if (!is_valid(of_run))
      return of_run;
    if (found == "VALID")
      found = of_run;
  }
  if (const std::int64_t repeats = last().integer("repeats"); std::ssize(runs) < repeats)
    return fmt::format("INVALID: {} of {}", runs.size(), counted(repeats, "repetition"));
  return found;
}

double CaseRuns::tokens_per_s() const {
  return median(list_of(runs, [](const Row* run) { return run->real("tokens_per_s"); }));
}

std::string verdict(const std::vector<Row>& rows, const Asked& asked, const std::string& stopped) {
  const std::vector<CaseRuns> cases = by_case(rows);
  Asked unfinished = asked;
  for (const CaseRuns& one : cases)
    if (one.has_ended())
      unfinished.erase(one.last().text("identity"));
  if (!unfinished.empty())
    return fmt::format("INVALID: {}{}unfinished cases: {} (the same command continues)",
        stopped,
        stopped.empty() ? "" : ", ",
        unfinished.size());
  if (cases.empty())
    return "INVALID: no case was run";
  for (const bool valid : {false, true}) {
    const auto is_told = [&](const CaseRuns& one) {
      const std::string verdict = one.verdict();
      return is_valid(verdict) == valid && !detail_of(verdict).empty();
    };
    const auto first = std::ranges::find_if(cases, is_told);
    if (first == cases.end())
      continue;
    return fmt::format("{}{} of {}, first case {} ({}): {}{}",
        valid ? "VALID (" : "INVALID: ",
        std::ranges::count_if(cases, is_told),
        counted(std::ssize(cases), "case"),
        first->last().integer("case"),
        describe(first->last(), rows),
        detail_of(first->verdict()),
        valid ? ")" : "");
  }
  return "VALID";
}

std::vector<std::string> figures_of_merit(const std::vector<Row>& rows) {
  const std::vector<CaseRuns> cases = by_case(rows);
  const auto text_of = [&](const CaseRuns* best) {
    return best == nullptr
               ? "none"
               : fmt::format(
                     "{:.6g} tokens/s ({})", best->tokens_per_s(), describe(best->last(), rows));
  };
  std::vector<std::string> figures;
  std::set<std::string> models;
  for (const CaseRuns& one : cases) {
    const std::string model = model_of(one.last());
    if (!models.insert(model).second)
      continue;
    const CaseRuns* best = best_of(cases, model, false);
    figures.push_back(text_of(best));
    if (best != nullptr && !detail_of(best->verdict()).empty())
      figures.back() += fmt::format(", {}; best without doubt: {}",
          detail_of(best->verdict()),
          text_of(best_of(cases, model, true)));
  }
  return figures.empty() ? std::vector<std::string>{"none"} : figures;
}

std::string closing_text(const std::vector<Row>& rows,
    const Remarks& remarks,
    const Asked& asked,
    const std::string& stopped) {
  std::string text;
  for (const Remark& remark : remarks)
    if (const std::string said = remark.sentence(rows); !said.empty())
      text += fmt::format("# {}\n", said);
  text += judged_text(by_case(rows));
  if (std::ranges::any_of(
          rows, [](const Row& row) { return row.text("bytes_source") == "by formula"; }))
    text += "# bytes of NCCL's collectives are by formula: NCCL does not tell which way they go\n";
  for (const std::string& figure : figures_of_merit(rows))
    text += fmt::format("figure of merit: {}\n", figure);
  return text + fmt::format("RESULT: {}\n", verdict(rows, asked, stopped));
}

std::vector<std::string> varying_settings(const std::vector<Row>& rows) {
  const std::set<std::string_view> derived = {"identity", "group_count", "parameters"};
  const std::set<std::string_view> follow_hidden = {"heads", "kv_heads", "ffn"};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const std::string& name = columns()[i].field.name;
    if (!columns()[i].is_setting || derived.contains(name))
      continue;
    const bool follows = follow_hidden.contains(name);
    std::map<std::int64_t, Cell> value_of;  // by hidden, its part of a head, or one for all
    const auto is_new = [&](const Row& row) {
      std::int64_t key = follows || name == "head_dim" ? row.integer("hidden") : 0;
      if (name == "head_dim")
        key /= std::max<std::int64_t>(1, row.integer("heads"));
      return value_of.try_emplace(key, row.cells[i]).first->second != row.cells[i];
    };
    if (std::ranges::any_of(rows, is_new))
      names.push_back(name);
  }
  return names;
}
}  // namespace minitaw::record
