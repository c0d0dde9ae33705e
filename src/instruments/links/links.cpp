// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/links/links.hpp"
#include <algorithm>
#include "base/statistics.hpp"

namespace minitaw::app {
using topology::Groups;

namespace {
/// Every rank of a group to one of another.
void append(Flows& flows, const Groups& groups, int from, int to) {
  for (const int rank : groups.members(from))
    flows.emplace_back(rank, groups.rank(to, groups.local(rank) % groups.size(to)));
}

/// Every rank to the next one of its group.
void append_ring(Flows& flows, const Groups& groups, int group) {
  const int size = groups.size(group);
  for (int local = 0; size > 1 && local < size; ++local)
    flows.emplace_back(groups.rank(group, local), groups.rank(group, (local + 1) % size));
}
}  // namespace

Figures measure_inside(Links& links, const Groups& groups) {
  const auto pair = std::ranges::find_if(groups.sizes(), [](int size) { return size > 1; });
  if (pair == groups.sizes().end())
    return {};
  const int group = static_cast<int>(pair - groups.sizes().begin()), first = groups.first(group);
  Flows one, all;
  append_ring(one, groups, group);
  for (int g = 0; g < groups.count(); ++g)
    append_ring(all, groups, g);
  return {{"latency_s", "latency, 8 bytes", links.latency(first, first + 1)},
      {"alone_bytes_per_s", "one rank to another", links.rate({{first, first + 1}})},
      {"shared_bytes_per_s", "all of a group at once, each rank", links.rate(one)},
      {"both_bytes_per_s", "all of all groups at once, each rank", links.rate(all)}};
}

Figures measure_between(Links& links, const Groups& groups) {
  if (groups.count() == 1)
    return {};
  const int a = groups.first(0), b = groups.first(1);
  Flows one, all;
  append(one, groups, 0, 1);
  for (int g = 0; g < groups.count(); ++g)
    append(all, groups, g, (g + 1) % groups.count());
  return {{"latency_s", "latency, 8 bytes", links.latency(a, b)},
      {"alone_bytes_per_s", "one rank to another", links.rate({{a, b}})},
      {"shared_bytes_per_s", "all of a group at once, together", groups.size(0) * links.rate(one)},
      {"both_bytes_per_s",
          "all groups out and in at once, the busiest",
          std::ranges::max(groups.sizes()) *
              links.rate(all)}};  // as many come in as leave the one before
}

double latency_of(std::vector<double> rounds) {
  return rounds.empty() ? 0 : median(std::move(rounds)) / 2;
}
}  // namespace minitaw::app
