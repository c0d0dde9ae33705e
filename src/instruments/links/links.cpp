// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/links/links.hpp"
#include <algorithm>
#include "base/statistics.hpp"

namespace minitaw::links {
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

class JobLinks final : public Links {
public:
  JobLinks(MPI_Comm comm, const Stopwatch& stopwatch, double seconds)
      : comm_(comm),
        stopwatch_(stopwatch),
        seconds_(seconds),
        rank_(comm::mpi::rank_in(comm)) {}

  double latency(int a, int b) override {
    constexpr int fewest = 10, most = 2000;
    const double round = 2 * median_latency(a, b, fewest);
    return median_latency(a, b, std::max(fewest, times_in(seconds_, round, most)));
  }

  double rate(const Flows& flows) override {
    (void)send(flows, 1);  // connects
    const int count = times_in(seconds_, send(flows, 1));
    return message_bytes * count / send(flows, count);
  }

private:
  /// Of so many round trips, which rank a sees.
  double median_latency(int a, int b, int count) {
    std::vector<double> seconds;
    (void)stopwatch_.slowest([&] {
      for (int i = 0; i < count && (rank_ == a || rank_ == b); ++i)
        seconds.push_back(round_trip(rank_ == a ? b : a, rank_ == a, comm_));
    });
    return largest(rank_ == a ? latency_of(std::move(seconds)) : 0, comm_);
  }

  /// Seconds until the last rank has sent and received its messages of all flows.
  double send(const Flows& flows, int count) {
    std::vector<int> receivers, senders;
    for (const auto& [from, to] : flows) {
      if (from == rank_)
        receivers.push_back(to);
      if (to == rank_)
        senders.push_back(from);
    }
    return stopwatch_.slowest(
        [&] { (void)exchange_.run(receivers, senders, count, message_bytes, comm_); });
  }

  MPI_Comm comm_;
  Stopwatch stopwatch_;
  double seconds_;
  int rank_;
  Exchange exchange_;
};
}  // namespace

std::unique_ptr<Links> make_links(MPI_Comm comm, const Stopwatch& stopwatch, double seconds) {
  return std::make_unique<JobLinks>(comm, stopwatch, seconds);
}

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
          // As many come in as leave the group before.
          std::ranges::max(groups.sizes()) * links.rate(all)}};
}

double latency_of(std::vector<double> rounds) {
  return rounds.empty() ? 0 : median(std::move(rounds)) / 2;
}
}  // namespace minitaw::links
