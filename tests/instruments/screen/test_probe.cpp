// SPDX-License-Identifier: BSD-3-Clause
// Six ranks of nodes 3+1+2 with two adapters each, which ranks 0, 3, 4 and 2, -, 5 drive.
// MPI is real, what ranks measure with is not: every value is known.
#include <gtest/gtest.h>
#include <map>
#include <set>
#include "instruments/screen/probe.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::screen {
namespace {
constexpr double tick = 1.0 / 1024;  // s, that a look at the clock takes
constexpr double mib = 1 << 20;
constexpr int node_of[] = {0, 0, 0, 1, 2, 2}, first_of[] = {0, 3, 4}, size_of[] = {3, 1, 2};
constexpr int adapter_of[] = {0, -1, 1, 0, 0, 1}, drivers[][3] = {{0, 3, 4}, {2, -1, 5}};
const std::vector<std::vector<int>> cores_of = {{0, 1}, {1, 2}, {3}, {0}, {0, 1, 2}, {2}};
/// Ranks that may run on cores of a rank.
const std::vector<std::vector<int>> sharing = {{0, 1}, {0, 1}, {2}, {3}, {4, 5}, {4, 5}};

/// The share of a rank's cores that others take; of rank 2 more is the job's than the cores were
/// busy, and the system of rank 3 does not tell.
double load_of(int rank) {
  return rank == 2 ? -0.5 : rank == 3 ? nothing : 0.125 * (rank + 1);
}

/// Another one for each pair and direction.
double pair_number(int from, int to) {
  return 16 + 6 * to + from;
}

class Simulated final : public Workbench {
public:
  /// `turn`: in which this rank computes.
  Simulated(int rank, int turn) : rank_(rank), turn_(turn) {}

  void next(const std::string& stage) {
    EXPECT_EQ(std::exchange(done, 0), 1) << stage;
    stage_ = stage;
    between_ += stage.starts_with("links between nodes, pairs") ? 1 : 0;
  }

  double now() override { return clock_ += tick; }

  /// At the begin and the end of a round.
  rates::CoreUse core_use() override {
    if (++usages_ % 2 == 1) {
      begin_ = clock_;
      return {clock_, 1000.0 * rank_, 7};
    }
    double all = load_of(rank_) * static_cast<double>(cores_of[rank_].size()) * (clock_ - begin_);
    for (const int rank : sharing[rank_])
      all += 10.0 + rank;
    return {clock_, 1000.0 * rank_ + all, 7 + 10.0 + rank_};
  }

  [[nodiscard]] std::vector<Kernel> kernels() const override {
    const auto kernel = [this](double amount, double seconds) {
      EXPECT_EQ(stage_, "kernels, turn " + std::to_string(turn_));
      return work(amount, seconds);
    };
    return {{"product", "FLOP/s", [=, this] { return kernel(840, 1 + rank_); }},
        {"triad", "B/s", [=, this] { return kernel(4096, 2 + rank_); }}};
  }

  /// One of five slices is the fastest.
  Work exchange(int peer) override {
    constexpr int slices[] = {3, 2, 1, 5, 4};
    return work(512, pair_number(peer, rank_) / 128 * slices[exchanges_[peer]++ % 5]);
  }

  /// One of twenty is.
  double round_trip(int peer) override {
    return 1e-6 * pair_number(peer, rank_) * (++trips_[peer] % 20 == 7 ? 1 : 3);
  }

  /// One of two is the better one; the first one connects.
  double messages(int peer, int count, std::size_t bytes) override {
    const double size = static_cast<double>(bytes) * count;
    if (stage_ == "links between nodes, first messages")
      return size / (++messages_[peer] == 1 ? 1.0 : rank_ == 3 ? 64 * mib : 192 * mib);
    EXPECT_EQ(size, 32 * mib) << "half a second at 128 MiB/s, by two";
    const int turn = (between_ - 1) % 3;
    EXPECT_TRUE(turn == 2 || turn == adapter_of[rank_]) << "adapters alone, then all together";
    const double best = mib * pair_number(peer, rank_) * (turn == 2 ? 0.25 : 1);
    return size / best * (++messages_[peer] % 2 == (peer + rank_) % 2 ? 2 : 1);
  }

  int done = 0;  ///< times that this rank has ended the stage
private:
  /// Takes long for the first time.
  [[nodiscard]] Work work(double amount, double seconds) const {
    return {
        amount, [this, next = 99.0, seconds]() mutable { clock_ += std::exchange(next, seconds); }};
  }

  int rank_, turn_;
  std::string stage_;
  int usages_ = 0, between_ = 0;  ///< between_: stages of that kind so far
  double begin_ = 0;
  mutable double clock_ = 1000;
  std::map<int, int> exchanges_, trips_, messages_;
};

/// A quantity and its values by hand, of a rank and its partner: a rank of the node, by its place,
/// or a node.
struct Known {
  Quantity quantity;
  std::function<double(int rank, int partner)> value;
};

Known kernel(const char* name, const char* units, double amount, double seconds) {
  return {{name, units}, [=](int rank, int) { return amount / (seconds + rank + tick); }};
}

double inside(int rank, int place) {
  const int node = node_of[rank], from = first_of[node] + place;
  return place >= size_of[node] || from == rank ? nothing : 512 * 128 / pair_number(from, rank);
}

Known between(const Quantity& quantity, double unit) {
  return {quantity, [=](int rank, int node) {
            const int adapter = adapter_of[rank], from = adapter < 0 ? -1 : drivers[adapter][node];
            return from < 0 || node == node_of[rank] ? nothing : unit * pair_number(from, rank);
          }};
}

TEST(Probe, EveryValueIsThatOfItsRankAndPartner) {
  const std::vector<Known> all = {kernel("product", "FLOP/s", 840, 1),
      kernel("triad", "B/s", 4096, 2),
      {{"rate inside the node", "B/s", Partner::inside}, inside},
      between({"rate between nodes", "B/s", Partner::node}, mib),
      between({"latency between nodes", "s", Partner::node}, 0.5e-6),
      between({"rate between nodes, all adapters at once", "B/s", Partner::node}, mib / 4),
      {{"cores taken by others", "1"}, [](int rank, int) { return load_of(rank); }}};
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD), node = node_of[rank],
            local = rank - first_of[node];
  const int cores = node == 0 ? 6 : 3;  // two threads each: three ranks compute at once, or one
  const topology::Placement place{
      .nodes = topology::Groups({3, 1, 2}), .node = node, .local_rank = local, .node_cores = cores};
  const int turn_alone = kernels::on_host && rank == 5 ? 2 : 1;
  for (const bool shared_devices : {false, true}) {
    auto workbench = std::make_unique<Simulated>(rank, shared_devices ? local + 1 : turn_alone);
    Simulated& simulated = *workbench;
    std::vector<topology::RankPlace> ranks;
    for (int r = 0; rank == 0 && r < 6; ++r)
      ranks.push_back({.machine = node_of[r], .cores = cores_of[r]});
    const ProbeOptions options{40,
        0.5,
        2,
        2,
        false,
        shared_devices,
        [&](const std::string& stage) { simulated.next(stage); },
        [&] { ++simulated.done; }};
    Probe probe(MPI_COMM_WORLD, place, ranks, options, std::move(workbench));
    const std::vector<Quantity>& quantities = probe.quantities();
    ASSERT_EQ(quantities.size(), all.size());
    for (int round = 0; round < 2; ++round) {
      const auto values = probe.round();
      ASSERT_EQ(values.size(), all.size());
      for (std::size_t q = 0; q < all.size() && rank == 0; ++q) {
        const auto& [quantity, known_of] = all[q];
        SCOPED_TRACE(quantity.name);
        EXPECT_EQ(quantities[q].name, quantity.name);
        EXPECT_EQ(quantities[q].units, quantity.units);
        EXPECT_EQ(quantities[q].partner, quantity.partner);
        const int partners = quantity.is_of_links() ? 3 : 1;
        ASSERT_EQ(std::ssize(values[q]), 6 * partners);
        for (int i = 0; i < 6 * partners; ++i) {
          const double value = values[q][i], known = known_of(i / partners, i % partners);
          EXPECT_TRUE(std::isnan(known)
                          ? std::isnan(value)
                          : std::abs(value - std::max(known, 0.0)) <= 1e-3 * std::abs(known))
              << i << ": " << value << ", not " << known;
        }
      }
    }
  }
}

TEST(Workbench, AmountsAreThoseOfTheShape) {
  const model::Shape shape{1, 8, 2, 2, 7, 11, 3, 2, model::Dtype::fp32};
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD), peer = rank ^ 1;
  const auto workbench =
      make_workbench(MPI_COMM_WORLD, comm::mpi::detect_placement(MPI_COMM_WORLD), shape, false);
  const auto expect = [](const Work& work, double amount) {
    EXPECT_EQ(work.amount, amount);
    work.once();
  };
  const std::vector<Kernel> kernels = workbench->kernels();
  expect(kernels.at(0).make(), 2 * 6 * 8 * 14);  // six tokens, hidden 8, gate and up of 7
  expect(kernels.at(1).make(), 12 * (kernels::on_host ? 8 : 64) * mib);
  constexpr int weights = 8 * 24 + 8 * 8 + 8 * 14 + 7 * 8;
  expect(workbench->exchange(peer), 4 * weights);
  const rates::CoreUse before = workbench->core_use();
  const double begin = workbench->now();
  EXPECT_TRUE(workbench->round_trip(peer) > 0 && workbench->messages(peer, 3, 1000) > 0);
  EXPECT_GT(workbench->now(), begin);
  const rates::CoreUse use = workbench->core_use() - before;
  EXPECT_TRUE(use.elapsed > 0 && use.own > 0 && use.busy >= 0);
}

TEST(Probe, InATournamentEachTwoMeetOnceAndNoOneTwiceInAStep) {
  for (int n = 2; n <= 9; ++n) {
    std::set<std::pair<int, int>> met;
    for (int step = 0; step < steps_of_tournament(n); ++step)
      for (int one = 0; one < n; ++one)
        if (const int other = opponent_of(one, step, n); other >= 0) {
          EXPECT_TRUE(other < n && other != one && opponent_of(other, step, n) == one) << n;
          met.emplace(one, other);
        }
    EXPECT_EQ(steps_of_tournament(n), n - 1 + n % 2);
    EXPECT_EQ(std::ssize(met), n * (n - 1)) << n;
  }
}
}  // namespace
}  // namespace minitaw::screen
