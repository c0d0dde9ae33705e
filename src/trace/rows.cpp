#include "trace/rows.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "trace/phase.hpp"

namespace minitaw::trace {
namespace {

/// Events of one rank and lane in order of time; those that overlap, directly or in a chain, are a cluster.
class Lane {
public:
  Lane(const std::vector<Event>& events, std::vector<Place>& places) : events_(events), places_(places) {}

  void add(int index) {
    const Event& event = events_[index];
    if (!cluster_.empty() && event.begin >= end_) close();
    const auto free = std::ranges::find_if(row_ends_, [&](double end) { return end <= event.begin; });
    places_[index].row = static_cast<int>(free - row_ends_.begin());
    if (free == row_ends_.end()) row_ends_.push_back(event.end);
    else *free = event.end;
    end_ = cluster_.empty() ? event.end : std::max(end_, event.end);
    cluster_.push_back(index);
  }

  void close() {
    const int rows = static_cast<int>(row_ends_.size());
    for (const int index : cluster_) places_[index].rows = rows;
    depth_ = std::max(depth_, rows);
    cluster_.clear();
    row_ends_.clear();
  }

  [[nodiscard]] int depth() const { return depth_; }

private:
  const std::vector<Event>& events_;
  std::vector<Place>& places_;
  std::vector<int> cluster_;
  std::vector<double> row_ends_;
  double end_ = 0;
  int depth_ = 0;
};

}  // namespace

Rows arrange(const Timeline& timeline) {
  const std::vector<Event>& events = timeline.events;
  Rows rows{std::vector<Place>(events.size()), {}};
  std::vector<std::vector<Lane>> lanes(timeline.groups.ranks(),
                                       std::vector<Lane>(schedule::lanes, Lane(events, rows.places)));
  std::vector<int> order(events.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int i) { return std::tuple(events[i].begin, events[i].end); });
  for (const int i : order)
    if (phase_of(events[i]) != Phase::join)
      lanes[events[i].rank][static_cast<std::size_t>(events[i].lane)].add(i);
  for (auto& rank : lanes) {
    auto& depth = rows.depth.emplace_back();
    for (std::size_t l = 0; l < rank.size(); ++l) {
      rank[l].close();
      depth[l] = rank[l].depth();
    }
  }
  return rows;
}

}  // namespace minitaw::trace
