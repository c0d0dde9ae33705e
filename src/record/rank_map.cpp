#include "record/rank_map.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::record {

namespace {

/// More than this are many.
constexpr int each_its_line = 16;

std::string node_text(int node, const HostNames& hosts) {
  return hosts.shown() ? fmt::format("node {} ({})", node, hosts.text(node)) : fmt::format("node {}", node);
}

std::string ranks_text(int first, int end) {
  return end - first == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, end - 1);
}

std::string line(int first, int end, const RankPlace& place, const HostNames& hosts, bool with_uuid) {
  return fmt::format("# {}: {}, cores {}, {}{}{}{}\n", ranks_text(first, end), node_text(place.node, hosts),
                     place.cores, place.unit, end - first > 1 ? " each" : "",
                     with_uuid && !place.uuid.empty() ? ", " : "", with_uuid ? place.uuid : "");
}

bool alike(const RankPlace& a, const RankPlace& b) { return a.cores == b.cores && a.unit == b.unit; }

class Compact {
public:
  Compact(const std::vector<RankPlace>& ranks, const HostNames& hosts) : ranks_(ranks), hosts_(hosts) {
    for (int rank = 0; rank < count(); ++rank)
      if (rank == 0 || at(rank).node != at(rank - 1).node) firsts_.push_back(rank);
    firsts_.push_back(count());
  }

  [[nodiscard]] std::string text() const {
    std::string text;
    const int nodes = static_cast<int>(firsts_.size()) - 1;
    for (int node = 0, next; node < nodes; node = next) {
      for (next = node + 1; next < nodes && same(node, next);) ++next;
      text += of_node(node);
      if (next - node > 1) text += of_followers(node, next);
    }
    return text;
  }

private:
  [[nodiscard]] int count() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const RankPlace& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int first(int node) const { return firsts_[static_cast<std::size_t>(node)]; }

  [[nodiscard]] bool same(int a, int b) const {
    return std::equal(ranks_.begin() + first(a), ranks_.begin() + first(a + 1), ranks_.begin() + first(b),
                      ranks_.begin() + first(b + 1), alike);
  }

  [[nodiscard]] std::string of_node(int node) const {
    std::string text;
    for (int rank = first(node), end; rank < first(node + 1); rank = end) {
      for (end = rank + 1; end < first(node + 1) && alike(at(rank), at(end));) ++end;
      text += line(rank, end, at(rank), hosts_, false);
    }
    return text;
  }

  /// The nodes after `node` that are like it.
  [[nodiscard]] std::string of_followers(int node, int end) const {
    std::string names;
    for (int n = node + 1; n < end && hosts_.shown(); ++n)
      names += (n > node + 1 ? ", " : " (") + hosts_.text(n);
    return fmt::format("# {}: node{} {}{}{}, as on node {}\n", ranks_text(first(node + 1), first(end)),
                       end - node > 2 ? "s" : "", node + 1,
                       end - node > 2 ? fmt::format(" to {}", end - 1) : "", names.empty() ? "" : names + ")",
                       node);
  }

  const std::vector<RankPlace>& ranks_;
  const HostNames& hosts_;
  std::vector<int> firsts_;  ///< rank of each node, and the number of ranks
};

}  // namespace

std::string map_text(const std::vector<RankPlace>& ranks, const HostNames& hosts) {
  const int count = static_cast<int>(ranks.size());
  if (count > each_its_line) return Compact(ranks, hosts).text();
  std::string text;
  for (int rank = 0; rank < count; ++rank)
    text += line(rank, rank + 1, ranks[static_cast<std::size_t>(rank)], hosts, true);
  return text;
}

}  // namespace minitaw::record
