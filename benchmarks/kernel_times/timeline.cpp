// SPDX-License-Identifier: BSD-3-Clause
#include "timeline.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <utility>

namespace minitaw::kernel_times {
namespace {
constexpr double us = 1e3, ms = 1e6;

template <class Map, class Time>
auto sorted(const Map& map, Time time) {
  std::vector<typename Map::mapped_type> values;
  for (const auto& [key, value] : map)
    values.push_back(value);
  std::ranges::stable_sort(values, std::ranges::greater{}, time);
  return values;
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}
}  // namespace

Summary summarize(std::vector<Activity> activities, std::uint64_t bound) {
  std::ranges::stable_sort(activities, {}, &Activity::begin);
  activities.erase(
      activities.begin(), activities.begin() + static_cast<std::ptrdiff_t>(activities.size() / 2));
  Summary summary;
  summary.activities = static_cast<int>(activities.size());
  if (activities.empty())
    return summary;
  std::map<std::string, Total> totals;
  std::map<std::pair<std::string, std::string>, Gap> gaps;
  // the one that ends last so far: kernels of several streams overlap
  const Activity* last = nullptr;
  for (const Activity& next : activities) {
    Total& total = totals[next.name];
    total.name = next.name, ++total.calls;
    total.time += next.end - next.begin;
    const std::uint64_t until = last ? last->end : next.begin;
    if (next.begin > until + bound) {
      Gap& gap = gaps[{last->name, next.name}];
      gap.before = last->name, gap.after = next.name, ++gap.count;
      gap.longest = std::max(gap.longest, next.begin - until);
      gap.together += next.begin - until;
    }
    if (next.end > until)
      summary.busy += next.end - std::max(until, next.begin);
    if (!last || next.end > last->end)
      last = &next;
  }
  summary.span = last->end - activities.front().begin;
  summary.totals = sorted(totals, &Total::time);
  summary.gaps = sorted(gaps, &Gap::together);
  return summary;
}

std::string report(const Summary& summary, std::uint64_t bound) {
  int count = 0;
  std::uint64_t together = 0;
  for (const Gap& gap : summary.gaps)
    count += gap.count, together += gap.together;
  std::string text;
  const auto out = std::back_inserter(text);
  const auto span = static_cast<double>(summary.span);
  fmt::format_to(out,
      "{} kernels, copies and fills in {:.3f} ms, busy {:.2f} %\n",
      summary.activities,
      span / ms,
      share(summary.busy, summary.span));
  fmt::format_to(out,
      "gaps above {:g} us: {}, together {:.3f} %\n\n",
      static_cast<double>(bound) / us,
      count,
      share(together, summary.span));
  fmt::format_to(out, "| kernel | calls | ms | of the time | mean, us |\n|---|---|---|---|---|\n");
  for (const Total& total : summary.totals) {
    const auto time = static_cast<double>(total.time);
    fmt::format_to(out,
        "| {} | {} | {:.3f} | {:.2f} % | {:.1f} |\n",
        total.name,
        total.calls,
        time / ms,
        share(total.time, summary.span),
        time / us / total.calls);
  }
  if (summary.gaps.empty())
    return text;
  fmt::format_to(
      out, "\n| gap after | before | times | longest, us | of the time |\n|---|---|---|---|---|\n");
  for (const Gap& gap : summary.gaps)
    fmt::format_to(out,
        "| {} | {} | {} | {:.1f} | {:.3f} % |\n",
        gap.before,
        gap.after,
        gap.count,
        static_cast<double>(gap.longest) / us,
        share(gap.together, summary.span));
  return text;
}
}  // namespace minitaw::kernel_times
