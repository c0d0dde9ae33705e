#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare_output.hpp"

namespace minitaw::app {

namespace {

using namespace record::compare;

std::string figure(double value) { return std::isfinite(value) ? fmt::format("{:.4g}", value) : "-"; }

std::string ratio(const CaseComparison& c, double Interval::* part) {
  const std::optional<Interval>& interval = c.aspect("time").ratio;
  return interval ? fmt::format("{:.3f}", (*interval).*part) : "-";
}

std::string word(const CaseComparison& c, std::initializer_list<const char*> names) {
  const Aspect& aspect = worst_of(c, names);
  return aspect.word.empty() ? "-" : aspect.word;
}

std::string integer(const CaseComparison& c, const char* column) {
  return fmt::format("{}", c.row.integer(column));
}

using Line = std::vector<std::string>;

std::vector<Line> lines_of(const Comparison& comparison) {
  std::vector<Line> lines = {{"case", "schedule", "ranks", "groups", "seq", "B", "M", "base", "new", "ratio",
                              "low", "high", "time", "memory", "bytes", "loss", "verdict"},
                             {"", "", "", "", "token", "", "", "s", "s", "", "", "", "", "", "", "", ""}};
  for (const CaseComparison& c : comparison.cases)
    lines.push_back(
        {integer(c, "case"), c.row.text("schedule"),
         deck::ranks_text(static_cast<int>(c.row.integer("ranks")),
                          static_cast<int>(c.row.integer("replicas"))),
         c.row.text("groups"), integer(c, "seq"), integer(c, "micro_batch"), integer(c, "micro_batches"),
         figure(c.aspect("time").base), figure(c.aspect("time").fresh), ratio(c, &Interval::estimate),
         ratio(c, &Interval::low), ratio(c, &Interval::high), word(c, {"time"}),
         word(c, {"memory", "process peak", "device memory"}), word(c, {"bytes inside", "bytes between"}),
         word(c, {"first loss", "last loss"}), word(c, {"verdict"})});
  return lines;
}

/// Columns of words are left-aligned, of numbers right-aligned.
bool is_words(const std::string& name) {
  static const std::vector<std::string> names = {"schedule", "groups", "time",   "memory",
                                                 "bytes",    "loss",   "verdict"};
  return std::ranges::find(names, name) != names.end();
}

std::string table(const std::vector<Line>& lines) {
  std::string text;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    std::string line = l < 2 ? "#" : " ";
    for (std::size_t i = 0; i < lines[l].size(); ++i) {
      const auto width =
          std::ranges::max(lines, {}, [i](const Line& each) { return each[i].size(); })[i].size();
      line += is_words(lines[0][i]) ? fmt::format(" {:<{}}", lines[l][i], width)
                                    : fmt::format(" {:>{}}", lines[l][i], width);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

const Aspect& worst_of(const CaseComparison& c, std::initializer_list<const char*> names) {
  const Aspect* worst = nullptr;
  for (const char* name : names) {
    const Aspect& aspect = c.aspect(name);
    if (!worst || more_serious(aspect.outcome, worst->outcome)) worst = &aspect;
  }
  return *worst;
}

std::string rules_text(const Rules& rules) {
  std::string text =
      fmt::format("threshold {:.4g} %, memory {:.4g} %, confidence {:.4g} %", 100 * rules.time.threshold,
                  100 * rules.memory_threshold, 100 * rules.time.confidence);
  if (rules.time.quantile > 0) text += fmt::format(", quantile {}", rules.time.quantile);
  return text;
}

std::string mean_text(const Comparison& comparison) {
  if (!comparison.mean) return "no geometric mean: the cases were not measured together often enough";
  return fmt::format("all cases together: new / base = {:.3f}, from {:.3f} to {:.3f} (geometric mean)",
                     comparison.mean->estimate, comparison.mean->low, comparison.mean->high);
}

std::string compare_text(const Comparison& comparison, const CompareHeading& heading) {
  std::string text = fmt::format("# base: {}\n# new:  {}\n# {}\n", heading.base, heading.fresh,
                                 rules_text(comparison.rules));
  for (const std::string& note : comparison.notes) text += fmt::format("# {}\n", note);
  text += table(lines_of(comparison));
  for (const CaseComparison& c : comparison.cases)
    for (const Aspect& aspect : c.aspects)
      if (!aspect.reason.empty())
        text += fmt::format("# case {}: {}: {}\n", c.row.integer("case"), aspect.word, aspect.reason);
  if (comparison.cases.size() > 1) text += fmt::format("# {}\n", mean_text(comparison));
  return text + fmt::format("COMPARISON: {}\n", comparison.text());
}

}  // namespace minitaw::app
