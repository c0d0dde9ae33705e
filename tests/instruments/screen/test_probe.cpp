// SPDX-License-Identifier: BSD-3-Clause
// Six ranks of nodes 3+1+2 with two adapters each, which ranks 0, 3, 4 and 2, -, 5 drive.
// MPI is real, what ranks measure with is not: every value is known.
#include <gmock/gmock.h>
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
/// The cores of ranks 0 and 1 are the same.
const std::vector<std::vector<int>> cores_of = {{0, 1}, {0, 1}, {3}, {0}, {1, 2}, {3}};

/// The share of a rank's cores that others take; of rank 2 more is the job's than the cores were
/// busy, and the system of rank 3 does not tell.
constexpr double load_of[] = {0.125, 0.25, -0.5, nothing, 0.625, 0.75};
/// Processors whose time rank 5 may take with one thread.
constexpr double quota = 0.375;

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
    if (std::isnan(begin_)) {
      begin_ = clock_;
      return {clock_, 1000.0 * rank_, 7};
    }
    const double cores = static_cast<double>(cores_of[rank_].size()),
                 others = load_of[rank_] * cores * (clock_ - std::exchange(begin_, nothing)),
                 ranks = rank_ < 2 ? 10 + 11 : 10 + rank_;
    return {clock_, 1000.0 * rank_ + others + ranks, 17.0 + rank_};
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
    return work(512, slowed(exchanges_[peer], 5) * pair_number(peer, rank_) / 128);
  }

  /// One of twenty is.
  double round_trip(int peer) override {
    return slowed(trips_[peer], 20) * pair_number(peer, rank_) * 1e-6;
  }

  /// One of two is; the first one of all connects.
  double messages(int peer, int count, std::size_t bytes) override {
    const double size = static_cast<double>(bytes) * count;
    if (stage_ == "links between nodes, first messages")
      return size / (std::exchange(connects_, false) ? 1.0 : rank_ == 3 ? 64 * mib : 192 * mib);
    EXPECT_EQ(size, 32 * mib) << "half a second at 128 MiB/s, by two";
    const int turn = (between_ - 1) % 3;
    EXPECT_TRUE(turn == 2 || turn == adapter_of[rank_]) << "adapters alone, then all together";
    const double best = mib * pair_number(peer, rank_) * (turn == 2 ? 0.25 : 1);
    return slowed(messages_[peer], 2) * size / best;
  }

  int done = 0;  ///< times that this rank has ended the stage
private:
  /// Takes long for the first time.
  [[nodiscard]] Work work(double amount, double seconds) const {
    return {
        amount, [this, next = 99.0, seconds]() mutable { clock_ += std::exchange(next, seconds); }};
  }

  /// 1 once in so many times, in the middle; else 3.
  static double slowed(int& times, int of) { return times++ % of == of / 2 ? 1 : 3; }

  int rank_, turn_;
  std::string stage_;
  int between_ = 0;  ///< stages of that kind so far
  bool connects_ = true;
  double begin_ = nothing;
  mutable double clock_ = 1000;
  std::map<int, int> exchanges_, trips_, messages_;
};

const std::vector<std::string> quantities = {"product: FLOP/s",
    "triad: B/s",
    "rate inside the node: B/s",
    "rate between nodes: B/s",
    "latency between nodes: s",
    "rate between nodes, all adapters at once: B/s",
    "cores taken by others: 1"};

/// A value by hand, of a rank and its partner: a rank of its node, by its place, or a node.
double value_of(std::size_t quantity, int rank, int partner) {
  const int node = node_of[rank], adapter = adapter_of[rank];
  const int beside = partner < size_of[node] ? first_of[node] + partner : rank,
            across = adapter < 0 || partner == node ? -1 : drivers[adapter][partner];
  switch (quantity) {
  case 0: return 840 / (1 + rank + tick);
  case 1: return 4096 / (2 + rank + tick);
  case 2: return beside == rank ? nothing : 512 * 128 / pair_number(beside, rank);
  case 6: return rank == 5 ? 1 - quota : std::max(load_of[rank], 0.0);
  default: break;
  }
  const double unit = quantity == 3 ? mib : quantity == 4 ? 0.5e-6 : mib / 4;
  return across < 0 ? nothing : unit * pair_number(across, rank);
}

TEST(Probe, EveryValueIsThatOfItsRankAndPartner) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD), node = node_of[rank],
            local = rank - first_of[node];
  const int cores = node == 0 ? 6 : 3;  // two threads each: three ranks compute at once, or one
  const topology::Placement place{
      .nodes = topology::Groups({3, 1, 2}), .node = node, .local_rank = local, .node_cores = cores};
  std::vector<topology::RankPlace> places;
  for (int r = 0; rank == 0 && r < 6; ++r)
    places.push_back({.machine = node_of[r], .cores = cores_of[r]});
  if (rank == 0)
    places[5].quota = quota;
  const int turn_alone = kernels::on_host && rank == 5 ? 2 : 1;
  for (const bool shared_devices : {false, true}) {
    auto workbench = std::make_unique<Simulated>(rank, shared_devices ? local + 1 : turn_alone);
    Simulated& simulated = *workbench;
    Probe probe(MPI_COMM_WORLD,
        place,
        places,
        {.seconds = 40,
            .link_seconds = 0.5,
            .threads = 2,
            .adapters = 2,
            .shared_devices = shared_devices,
            .next = [&](const std::string& stage) { simulated.next(stage); },
            .done = [&] { ++simulated.done; }},
        std::move(workbench));
    EXPECT_EQ(list_of(probe.quantities(),
                  [](const Quantity& q) { return fmt::format("{}: {}", q.name, q.units); }),
        quantities);
    for (int round = 0; round < 2; ++round) {
      const auto values = probe.round();
      for (std::size_t q = 0; q < quantities.size() && rank == 0; ++q) {
        const int partners = q < 2 || q == 6 ? 1 : 3;
        ASSERT_EQ(std::ssize(values.at(q)), 6 * partners);
        for (int i = 0; i < 6 * partners; ++i) {
          const double known = value_of(q, i / partners, i % partners);
          EXPECT_THAT(
              values[q][i], testing::NanSensitiveDoubleNear(known, 1e-3 * std::fmax(known, 0)))
              << quantities[q] << " " << i;
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
}

TEST(Probe, InATournamentEachTwoMeetOnceAndNoOneTwiceInAStep) {
  for (int n = 2; n <= 9; ++n) {
    std::set<std::pair<int, int>> met;
    for (int step = 0; step < steps_of_tournament(n); ++step)
      for (int one = 0; one < n; ++one)
        if (const int other = opponent_of(one, step, n); other >= 0) {
          EXPECT_EQ(opponent_of(other, step, n), one) << n;
          met.emplace(one, other);
        }
    EXPECT_EQ(steps_of_tournament(n), n - 1 + n % 2);
    EXPECT_EQ(std::ssize(met), n * (n - 1)) << n;
  }
}
}  // namespace
}  // namespace minitaw::screen
