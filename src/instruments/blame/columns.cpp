// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include "base/error.hpp"
#include "instruments/blame/blame.hpp"
#include "record/provenance.hpp"

namespace minitaw::blame {
namespace {
using record::Row;

/// A scalar of a result; `missing` if no step was examined.
template <class T>
T scalar(const CaseResult& result, std::string_view path, const T& missing) {
  const auto values = result.values_of<T>(path);
  return values.empty() ? missing : values.front();
}

record::Cells columns(const CaseResult& result) {
  return {{"blame", scalar<std::string>(result, "blame/text", "")},
      {"culprit", scalar<std::string>(result, "blame/culprit", "")},
      {"culprit_slower", scalar(result, "blame/slower", Finding::unknown)},
      {"culprit_share", scalar(result, "blame/share", Finding::unknown)}};
}

/// Who does not stand out in each repetition is not named.
void join(const Row& earlier, CaseResult& result) {
  const std::string culprit = scalar<std::string>(result, "blame/culprit", "");
  if (earlier.text("culprit") == culprit || result.find("blame/culprit") == nullptr)
    return;
  if (!culprit.empty())
    result.find("blame/text")->values = one("no rank or link stands out in every repetition");
  result.find("blame/culprit")->values = one("");
  for (const char* figure : {"blame/slower", "blame/share"})
    result.find(figure)->values = one(Finding::unknown);
}

/// One sentence for cases that differ only in whether a message tells the rate of a link.
std::vector<std::string> texts_of(std::map<std::string, std::ptrdiff_t> reasons) {
  const auto ranks = reasons.find(no_rank), links = reasons.find(no_rank_or_link);
  std::vector<std::string> texts;
  if (ranks != reasons.end() && links != reasons.end()) {
    texts.push_back(fmt::format("{}; links are judged in {} of {}",
        no_rank_or_link,
        links->second,
        counted(links->second + ranks->second, "case")));
    reasons.erase(ranks);
    reasons.erase(links);
  }
  for (const auto& [text, cases] : reasons)
    texts.push_back(text);
  return texts;
}
}  // namespace

void add(const Finding& finding, CaseResult& result) {
  const auto figure = [](const char* path, double value) {
    return Dataset{.path = path, .units = "1", .axes = "", .values = one(value)};
  };
  result.found.insert(result.found.end(),
      {record::entry("blame/text", finding.text),
          record::entry("blame/culprit", finding.culprit),
          figure("blame/slower", finding.slower),
          figure("blame/share", finding.share),
          {.path = "blame/ratios",
              .units = "1",
              .axes = "rank",
              .values = finding.ratios,
              .shape = {finding.ratios.size()}}});
}

std::vector<std::string> standing_out(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<const Row*>> named;
  std::map<std::string, std::ptrdiff_t> reasons;  // and in how many cases
  std::ptrdiff_t judged = 0;
  for (const Row& row : rows) {
    const std::string &text = row.text("blame"), &culprit = row.text("culprit");
    if (text.empty())
      continue;
    ++judged;
    if (culprit.empty())
      ++reasons[text];
    else
      named[culprit].push_back(&row);
  }
  std::vector<std::string> sentences;
  std::ptrdiff_t single = 0;  // cases in which somebody stands out who is not named
  for (const auto& [culprit, some] : named) {
    const std::ptrdiff_t cases = std::ssize(some);
    if (2 * cases < judged || (cases == 1 && judged > 1)) {
      single += cases;
      continue;
    }
    const Row& worst = **std::ranges::max_element(
        some, {}, [](const Row* row) { return std::fmax(row->real("culprit_share"), -1); });
    sentences.push_back(fmt::format("{} (case {}); it stands out in {} of {}",
        worst.text("blame"),
        worst.integer("case"),
        cases,
        counted(judged, "case")));
  }
  if (!sentences.empty() || judged == 0)
    return sentences;
  if (single > 0)
    return {
        fmt::format("no rank or link stands out in half of {}; one does in {}, see column culprit",
            counted(judged, "case"),
            single)};
  return texts_of(reasons);
}

record::Extension extension() {
  return {.columns = columns, .join = join, .attribute = "stands_out", .sentences = standing_out};
}
}  // namespace minitaw::blame
