#include "topology/groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <numeric>

#include "base/error.hpp"

namespace minitaw::topology {

Groups::Groups(std::vector<int> sizes) : sizes_(std::move(sizes)) {
  if (sizes_.empty()) throw InputError("groups: no group given; at least one group of one rank is needed");
  for (int k = 0; k < count(); ++k) {
    if (sizes_[k] < 1)
      throw InputError(
          fmt::format("groups: group {} has {} ranks; every group needs at least 1", k, sizes_[k]));
    first_.push_back(ranks());
    group_of_.insert(group_of_.end(), sizes_[k], k);
  }
}

Groups Groups::equal(int ranks, int count) {
  if (count < 1 || count > ranks || ranks % count != 0)
    throw InputError(fmt::format(
        "groups: {} ranks cannot form {} equal groups; give a divisor of {} or sizes such as \"1+{}\"", ranks,
        count, ranks, std::max(ranks - 1, 1)));
  return Groups(std::vector<int>(count, ranks / count));
}

std::vector<int> Groups::members(int group) const {
  std::vector<int> ranks(sizes_[group]);
  std::iota(ranks.begin(), ranks.end(), first_[group]);
  return ranks;
}

std::string Groups::text() const { return fmt::format("{}", fmt::join(sizes_, "+")); }

Groups parse_groups(const std::string& text) {
  constexpr int most_ranks = 1'000'000;
  std::vector<int> sizes;
  int ranks = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || (next != end && *next != '+') || size < 1 || size > most_ranks - ranks)
      throw InputError(
          fmt::format("groups: \"{}\" is not a list of group sizes; write for example \"1+2+3\"", text));
    sizes.push_back(size);
    ranks += size;
    if (next == end) return Groups(std::move(sizes));
    at = next + 1;
  }
}

}  // namespace minitaw::topology
