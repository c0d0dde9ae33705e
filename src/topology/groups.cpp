// SPDX-License-Identifier: BSD-3-Clause
#include "topology/groups.hpp"
#include <charconv>
#include <fmt/ranges.h>
#include <numeric>
#include <ranges>
#include "base/error.hpp"

namespace minitaw::topology {
Groups::Groups(std::vector<int> sizes) : sizes_(std::move(sizes)) {
  if (sizes_.empty())
    throw InputError("groups: no group given; at least one group of one rank is needed");
  for (int k = 0; k < count(); ++k) {
    if (sizes_[k] < 1)
      throw InputError("groups: group {} has {} ranks; every group needs at least 1", k, sizes_[k]);
    first_.push_back(ranks());
    group_of_.insert(group_of_.end(), sizes_[k], k);
  }
}

Groups Groups::equal(int ranks, int count) {
  if (count < 1 || count > ranks || ranks % count != 0)
    throw InputError(
        "groups: {} cannot form {} equal groups; give a divisor of {} or sizes such as \"1+{}\"",
        counted(ranks, "rank"),
        count,
        ranks,
        std::max(ranks - 1, 1));
  return Groups(std::vector<int>(count, ranks / count));
}

Ranks Groups::members(int group) const {
  Ranks ranks(sizes_[group]);
  std::iota(ranks.begin(), ranks.end(), first_[group]);
  return ranks;
}

Groups Groups::within(int begin, int end) const {
  std::vector<int> sizes;
  for (int r = begin; r < end; ++r) {
    if (r == begin || !together(r - 1, r))
      sizes.push_back(0);
    ++sizes.back();
  }
  return Groups(std::move(sizes));
}

std::string Groups::text() const {
  return fmt::format("{}", fmt::join(sizes_, "+"));
}

Groups parse_groups(const std::string& text, int ranks) {
  const bool open = ranks > 0 && text.ends_with("+*");
  std::vector<int> sizes;
  int left = most_ranks;
  for (const auto part : std::views::split(text.substr(0, text.size() - (open ? 2 : 0)), '+')) {
    const char* const end = std::to_address(part.end());
    const auto [next, error] =
        std::from_chars(std::to_address(part.begin()), end, sizes.emplace_back());
    if (error != std::errc() || next != end || sizes.back() < 1 || sizes.back() > left)
      throw InputError("groups: \"{}\" is neither a number of groups nor their sizes; "
                       "write for example 2 or \"1+2+3\"",
          text);
    left -= sizes.back();
  }
  if (ranks == 0)
    return Groups(std::move(sizes));
  if (!open && sizes.size() == 1)
    return Groups::equal(ranks, sizes[0]);
  const int missing = ranks - (most_ranks - left);
  if (sizes.empty() || (open ? missing < 1 : missing != 0))
    throw InputError("groups: \"{}\" does not fit {}; make the sizes add up to {}",
        text,
        counted(ranks, "rank"),
        ranks);
  if (open)
    sizes.push_back(missing);
  return Groups(std::move(sizes));
}
}  // namespace minitaw::topology
