#include <fmt/format.h>

#include <cmath>

#include "compare_output.hpp"

namespace minitaw::app {

namespace {

using namespace record::compare;

/// Text in a cell: what Markdown or HTML would read as more than text is shown as it is.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') safe += "&lt;";
    else if (c == '&') safe += "&amp;";
    else if (static_cast<unsigned char>(c) < 0x20) safe += ' ';
    else if (std::string_view("|`*_[]\\~#@").find(c) != std::string_view::npos)
      safe += fmt::format("\\{}", c);
    else safe += c;
  }
  return safe;
}

/// What is not as it was stands out.
std::string word(const Aspect& aspect) {
  if (aspect.word.empty()) return "-";
  return aspect.outcome == Outcome::worse ? fmt::format("**{}**", aspect.word) : aspect.word;
}

std::string milliseconds(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.4g}", 1000 * seconds) : "-";
}

std::string row(const CaseComparison& c) {
  const Aspect& time = c.aspect("time");
  const std::string ratio = time.ratio ? fmt::format("{:.3f} ({:.3f} to {:.3f})", time.ratio->estimate,
                                                     time.ratio->low, time.ratio->high)
                                       : "-";
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", cell(c.label),
                     milliseconds(time.base), milliseconds(time.fresh), ratio, word(time),
                     word(worst_of(c, {"memory", "process peak", "device memory"})),
                     word(worst_of(c, {"bytes inside", "bytes between"})),
                     word(worst_of(c, {"first loss", "last loss"})), word(c.aspect("verdict")));
}

}  // namespace

std::string compare_markdown(const Comparison& comparison, const CompareHeading& heading) {
  std::string text = fmt::format("### miniTaw: {}\n\n", cell(comparison.text()));
  text += "| case | base, ms | new, ms | new / base | time | memory | bytes | loss | verdict |\n";
  text += "|---|---:|---:|---:|---|---|---|---|---|\n";
  for (const CaseComparison& c : comparison.cases) text += row(c);
  text += "\n";
  if (comparison.cases.size() > 1) text += cell(mean_text(comparison)) + "\n\n";
  for (const CaseComparison& c : comparison.cases)
    for (const Aspect& aspect : c.aspects)
      if (!aspect.reason.empty())
        text += fmt::format("- {}: {}: {}\n", cell(c.label), aspect.word, cell(aspect.reason));
  text += fmt::format("\n<details><summary>What was compared</summary>\n\n- base: {}\n- new: {}\n- {}\n",
                      cell(heading.base), cell(heading.fresh), cell(rules_text(comparison.rules)));
  for (const std::string& note : comparison.notes) text += fmt::format("- {}\n", cell(note));
  return text + "\n</details>\n";
}

}  // namespace minitaw::app
