#include "trace/mean_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"

namespace minitaw::trace {
namespace {

using schedule::Kind;

constexpr int any_rank = -1;

/// What has one duration: kind, whether a transfer stays inside a group, payload, shard, rank.
using Alike = std::tuple<Kind, bool, schedule::Payload, int, int>;

/// A message is asked for as its send.
Kind asked_as(Kind kind) { return kind == Kind::recv ? Kind::send : kind; }

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
};

/// One transfer, seen from all of its sides.
struct Transfer {
  Alike alike;
  double begin = 0, end = 0;  ///< of the last side
};

class Means {
public:
  Means(const Timeline& measured, bool rank_by_rank) : groups_(measured.groups), rank_by_rank_(rank_by_rank) {
    for (const Event& event : measured.events) add(event);
    for (const auto& [link, transfer] : transfers_)
      means_[transfer.alike].add(std::max(0.0, transfer.end - transfer.begin));
  }

  [[nodiscard]] double of(int rank, const schedule::Action& a) const {
    const auto found =
        means_.find({asked_as(a.kind), inside(rank, a), a.payload, a.shard, counted_rank(rank, a.kind)});
    if (found == means_.end())
      throw InputError(fmt::format("the measured step had no {} of shard {}: another version of this program "
                                   "made the file, and plans the step otherwise",
                                   name_of(a.kind), a.shard));
    return found->second.sum / found->second.count;
  }

private:
  [[nodiscard]] int counted_rank(int rank, Kind kind) const {
    return rank_by_rank_ && !is_communication(kind) ? rank : any_rank;
  }

  /// Collectives that leave a group have the lanes of receives.
  template <class ActionOrEvent>
  [[nodiscard]] bool inside(int rank, const ActionOrEvent& a) const {
    if (schedule::is_point_to_point(a.kind)) return groups_.together(rank, a.peer);
    return a.lane != schedule::Lane::operands_in && a.lane != schedule::Lane::gradients_in;
  }

  void add(const Event& e) {
    const Alike alike{asked_as(e.kind), inside(e.rank, e), e.payload, e.shard, counted_rank(e.rank, e.kind)};
    if (e.link < 0) return means_[alike].add(e.end - e.begin);
    Transfer& transfer = transfers_.try_emplace(e.link, Transfer{alike, e.begin, e.end}).first->second;
    transfer.begin = std::max(transfer.begin, e.begin);
    transfer.end = std::max(transfer.end, e.end);
  }

  topology::Groups groups_;
  bool rank_by_rank_;
  std::map<int, Transfer> transfers_;
  std::map<Alike, Mean> means_;
};

}  // namespace

schedule::Costs mean_costs(const Timeline& measured, bool rank_by_rank) {
  return [means = Means(measured, rank_by_rank)](int rank, const schedule::Action& action) {
    return means.of(rank, action);
  };
}

}  // namespace minitaw::trace
