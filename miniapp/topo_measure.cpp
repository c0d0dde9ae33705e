#include "topo_measure.hpp"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "comm/mpi/check.hpp"
#include "comm/mpi/size.hpp"

namespace minitaw::app {
namespace {

using comm::mpi::check;
using topology::Groups;

constexpr int flow_tag = 1, ping_tag = 2;
constexpr int least_rounds = 10, most_rounds = 2000, most_messages = 4096;

/// Whoever measures tests again at once, giving way to a rank on the same core; whoever waits for others to
/// have measured sleeps.
enum class Wait { busy, asleep };

void wait(std::vector<MPI_Request>& requests, Wait how) {
  for (int done = 0;;) {
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (done != 0) return;
    if (how == Wait::busy) sched_yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void barrier() {
  std::vector<MPI_Request> request(1);
  check(MPI_Ibarrier(MPI_COMM_WORLD, request.data()), "MPI_Ibarrier");
  wait(request, Wait::asleep);
}

/// The largest of all ranks, on all ranks.
double most(double mine) {
  double all = 0;
  std::vector<MPI_Request> request(1);
  check(MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, request.data()),
        "MPI_Iallreduce");
  wait(request, Wait::asleep);
  return all;
}

/// Messages from one rank to another, repeated.
struct Flow {
  int from, to;
};
using Flows = std::vector<Flow>;

class Links {
public:
  Links(const Groups& groups, double seconds)
      : groups_(groups), seconds_(seconds), rank_(comm::mpi::rank_in(MPI_COMM_WORLD)), sent_(topo_message) {}

  /// Seconds: half of the median round.
  double latency(int a, int b) {
    const double once = most(median(rounds(a, b, least_rounds)));
    const int count = std::clamp(static_cast<int>(seconds_ / once), least_rounds, most_rounds);
    return most(median(rounds(a, b, count))) / 2;
  }

  /// Bytes/s of each flow while all are under way at once, until the last one has ended.
  double rate(const Flows& flows) {
    (void)send(flows, 1);  // connects
    const double once = most(send(flows, 1));
    const int count = std::clamp(static_cast<int>(seconds_ / once), 1, most_messages);
    return 1.0 * count * topo_message / most(send(flows, count));
  }

private:
  /// Of each round, on rank a; nothing on the others.
  std::vector<double> rounds(int a, int b, int count) const {
    std::vector<double> seconds;
    barrier();
    for (int i = 0; i < count && (rank_ == a || rank_ == b); ++i) {
      const double begin = MPI_Wtime();
      if (rank_ == a) ping(b), pong(b);
      else pong(a), ping(a);
      if (rank_ == a) seconds.push_back(MPI_Wtime() - begin);
    }
    barrier();
    return seconds;
  }

  static double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
  }

  static void ping(int peer) {
    double word = 0;
    std::vector<MPI_Request> request(1);
    check(MPI_Isend(&word, 1, MPI_DOUBLE, peer, ping_tag, MPI_COMM_WORLD, request.data()), "MPI_Isend");
    wait(request, Wait::busy);
  }
  static void pong(int peer) {
    double word = 0;
    std::vector<MPI_Request> request(1);
    check(MPI_Irecv(&word, 1, MPI_DOUBLE, peer, ping_tag, MPI_COMM_WORLD, request.data()), "MPI_Irecv");
    wait(request, Wait::busy);
  }

  /// Seconds until this rank has sent and received `count` messages of each of its flows; at most two of a
  /// flow are under way.
  double send(const Flows& flows, int count) {
    constexpr int under_way = 2;
    barrier();
    const double begin = MPI_Wtime();
    for (int message = 0; message < count; message += under_way) {
      std::vector<MPI_Request> requests;
      for (int i = message; i < std::min(count, message + under_way); ++i) start(flows, requests);
      if (!requests.empty()) wait(requests, Wait::busy);
    }
    const double seconds = MPI_Wtime() - begin;
    barrier();
    return seconds;
  }

  void start(const Flows& flows, std::vector<MPI_Request>& requests) {
    for (const Flow& flow : flows) {
      if (flow.to == rank_) {
        if (received_.size() <= requests.size()) received_.resize(requests.size() + 1);
        std::vector<std::byte>& into = received_[requests.size()];
        into.resize(topo_message);
        check(MPI_Irecv(into.data(), topo_message, MPI_BYTE, flow.from, flow_tag, MPI_COMM_WORLD,
                        &requests.emplace_back()),
              "MPI_Irecv");
      }
      if (flow.from == rank_)
        check(MPI_Isend(sent_.data(), topo_message, MPI_BYTE, flow.to, flow_tag, MPI_COMM_WORLD,
                        &requests.emplace_back()),
              "MPI_Isend");
    }
  }

  const Groups& groups_;
  double seconds_;
  int rank_;
  std::vector<std::byte> sent_;
  std::vector<std::vector<std::byte>> received_;  ///< one for each request under way
};

/// Every rank of a group to one of another.
void append(Flows& flows, const Groups& groups, int from, int to) {
  for (const int rank : groups.members(from))
    flows.push_back({rank, groups.rank(to, groups.local(rank) % groups.size(to))});
}

/// Every rank to the next one of its group.
void append_ring(Flows& flows, const Groups& groups, int group) {
  const int size = groups.size(group);
  for (int local = 0; size > 1 && local < size; ++local)
    flows.push_back({groups.rank(group, local), groups.rank(group, (local + 1) % size)});
}

LinkRates measure_inside(Links& links, const Groups& groups, int group) {
  const int first = groups.first(group);
  Flows one, all;
  append_ring(one, groups, group);
  for (int g = 0; g < groups.count(); ++g) append_ring(all, groups, g);
  return {.latency = links.latency(first, first + 1),
          .alone = links.rate({{first, first + 1}}),
          .shared = links.rate(one),
          .both = links.rate(all)};
}

/// Flows of the group that has most of them, out or in.
int most_flows(const Flows& flows, const Groups& groups) {
  std::vector<int> out(static_cast<std::size_t>(groups.count())), in = out;
  for (const Flow& flow : flows) {
    ++out[static_cast<std::size_t>(groups.group_of(flow.from))];
    ++in[static_cast<std::size_t>(groups.group_of(flow.to))];
  }
  return std::max(std::ranges::max(out), std::ranges::max(in));
}

LinkRates measure_between(Links& links, const Groups& groups) {
  const int a = groups.first(0), b = groups.first(1);
  Flows one, all;
  append(one, groups, 0, 1);
  for (int g = 0; g < groups.count(); ++g) append(all, groups, g, (g + 1) % groups.count());
  return {.latency = links.latency(a, b),
          .alone = links.rate({{a, b}}),
          .shared = groups.size(0) * links.rate(one),
          .both = most_flows(all, groups) * links.rate(all)};
}

}  // namespace

TopoRates measure_links(const Groups& groups, double seconds_each) {
  Links links(groups, seconds_each);
  TopoRates rates;
  for (int g = 0; g < groups.count() && !rates.inside; ++g)
    if (groups.size(g) > 1) rates.inside = measure_inside(links, groups, g);
  if (groups.count() > 1) rates.between = measure_between(links, groups);
  return rates;
}

}  // namespace minitaw::app
