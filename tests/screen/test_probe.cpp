// SPDX-License-Identifier: BSD-3-Clause
// Six ranks of nodes 3+1+2 with two adapters each: 0, 3, 4 and 2, -, 5 drive them. MPI is real, what ranks measure with
// is not: every value is known.
#include <array>
#include <gtest/gtest.h>
#include <map>
#include "kernels/kernels.hpp"
#include "schedule/program.hpp"
#include "screen/probe.hpp"

namespace minitaw::screen {
namespace {
constexpr double tick = 1.0 / 1024;  // s, that a look at the clock takes
constexpr double mib = 1 << 20;
constexpr std::array first_of = {0, 3, 4}, size_of = {3, 1, 2};
constexpr std::array node_of = {0, 0, 0, 1, 2, 2};
constexpr std::array adapter_of = {0, -1, 1, 0, 0, 1};
constexpr std::array drivers = {std::array{0, 3, 4}, std::array{2, -1, 5}};

/// Another one for each pair and direction.
double pair_number(int from, int to) { return 16 + 6 * to + from; }

/// Where the ranks are.
struct Stage {
  std::string text;
  int inside = 0, between = 0;  ///< stages of that kind so far
  int done = 0;                 ///< calls since the stage began
};

struct Variant {
  bool one_machine, shared_devices;
  std::array<int, 6> turns;  ///< in which ranks compute
};

class Simulated final : public Instruments {
public:
  Simulated(int rank, const Variant& variant, const Stage& stage) : rank_(rank), variant_(variant), stage_(stage) {}

  double now() override { return clock_ += tick; }

  [[nodiscard]] std::vector<Kernel> kernels() const override {
    const auto kernel = [this](double amount, double seconds) {
      EXPECT_EQ(stage_.text, "kernels, turn " + std::to_string(variant_.turns[rank_]));
      return work(amount, seconds);
    };
    return {{"product", "FLOP/s", [=, this] { return kernel(840, 1 + rank_); }},
        {"triad", "B/s", [=, this] { return kernel(4096, 2 + rank_); }}};
  }

  Work exchange(int peer) override {
    constexpr std::array slices = {3, 2, 1, 5, 4};
    expect_turn();
    return work(512, pair_number(peer, rank_) / 128 * slices[exchanges_[peer]++ % 5]);
  }

  Work collect(schedule::Kind kind) override {
    constexpr std::array slices = {2, 3, 5, 1, 4};
    expect_turn();
    const bool gathers = kind == schedule::Kind::all_gather;
    EXPECT_TRUE(gathers || kind == schedule::Kind::reduce_scatter);
    return work(gathers ? 700 : 900, pair_number(rank_, rank_) / 128 * slices[collects_[gathers]++ % 5]);
  }

  /// One of twenty is the fastest.
  double round_trip(int peer) override { return 1e-6 * pair_number(peer, rank_) * (++trips_[peer] % 20 == 7 ? 1 : 3); }

  /// One of two is the better one; the first one connects.
  double messages(int peer, int count, std::size_t bytes) override {
    const double size = static_cast<double>(bytes) * count;
    if (stage_.text == "links between nodes, first messages")
      return size / (++messages_[peer] == 1 ? 1.0 : rank_ == 3 ? 64 * mib : 192 * mib);
    EXPECT_EQ(size, 32 * mib) << "half a second at 128 MiB/s, by two";
    const int turn = (stage_.between - 1) % 3;
    EXPECT_TRUE(turn == 2 || turn == adapter_of[rank_]) << "adapters alone, then all together";
    const double best = mib * pair_number(peer, rank_) * (turn == 2 ? 0.25 : 1);
    return size / best * (++messages_[peer] % 2 == (peer + rank_) % 2 ? 2 : 1);
  }
private:
  /// Takes long for the first time.
  [[nodiscard]] Work work(double amount, double seconds) const {
    return {amount,
        [this, seconds, is_first = true]() mutable { clock_ += std::exchange(is_first, false) ? 99 : seconds; }};
  }
  void expect_turn() const {
    EXPECT_TRUE(!variant_.one_machine || (stage_.inside - 1) % 3 == node_of[rank_]) << "nodes that share cores";
  }

  int rank_;
  Variant variant_;
  const Stage& stage_;
  mutable double clock_ = 1000;
  std::map<int, int> exchanges_, collects_, trips_, messages_;
};

/// By hand; 0: nothing is measured. `partner`: a rank of the node, by its place there, or a node.
double expected(const std::string& name, int rank, int partner) {
  const int node = node_of[rank], adapter = adapter_of[rank];
  if (name == "product") return 840 / (1 + rank + tick);
  if (name == "triad") return 4096 / (2 + rank + tick);
  if (name == "all-gather in the group") return node == 1 ? 0 : 700 * 128 / pair_number(rank, rank);
  if (name == "reduce-scatter in the group") return node == 1 ? 0 : 900 * 128 / pair_number(rank, rank);
  if (name == "rate inside the node") {
    const int from = first_of[node] + partner;
    return partner >= size_of[node] || from == rank ? 0 : 512 * 128 / pair_number(from, rank);
  }
  const int from = partner == node || adapter < 0 ? -1 : drivers[adapter][partner];
  if (from < 0) return 0;
  if (name == "latency between nodes") return 1e-6 * pair_number(from, rank) / 2;
  return mib * pair_number(from, rank) * (name == "rate between nodes" ? 1 : 0.25);
}

TEST(Probe, EveryValueIsThatOfItsRankAndPartner) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD);
  const topology::Groups nodes({3, 1, 2});
  const int node = node_of[rank];
  const topology::Placement place{.nodes = nodes,
      .hosts = {},
      .node = node,
      .local_rank = rank - first_of[node],
      .core_list = {},
      .node_cores = node == 0 ? 6 : 3};
  const std::array<int, 6> turns = kernels::on_host ? std::array{1, 1, 1, 1, 1, 2} : std::array{1, 1, 1, 1, 1, 1};
  for (const Variant& variant : {Variant{false, false, turns}, Variant{true, false, {1, 2, 3, 4, 5, 6}},
           Variant{false, true, {1, 2, 3, 1, 1, 2}}}) {
    Stage stage;
    const auto next = [&](const std::string& text) {
      EXPECT_EQ(std::exchange(stage.done, 0), 1) << text;
      stage.text = text;
      stage.inside += text.starts_with("links inside") || text.ends_with("of the groups") ? 1 : 0;
      stage.between += text.starts_with("links between nodes, pairs") ? 1 : 0;
    };
    const auto probe = make_probe(MPI_COMM_WORLD, place,
        {.seconds = 40,
            .link_seconds = 0.5,
            .threads = 2,
            .adapters = 2,
            .one_machine = variant.one_machine,
            .shared_devices = variant.shared_devices,
            .next = next,
            .done = [&] { ++stage.done; }},
        std::make_unique<Simulated>(rank, variant, stage));
    const std::vector<Quantity> quantities = probe->quantities();
    for (int round = 0; round < 2; ++round) {
      const auto values = probe->round();
      ASSERT_EQ(values.size(), quantities.size());
      EXPECT_EQ(quantities.size(), 8U);
      for (std::size_t q = 0; q < values.size() && rank == 0; ++q) {
        const std::string& name = quantities[q].name;
        const int partners =
            name.ends_with("the node") || name.starts_with("rate between") || name.starts_with("lat") ? 3 : 1;
        ASSERT_EQ(std::ssize(values[q]), 6 * partners) << name;
        for (int i = 0; i < 6 * partners; ++i) {
          const double known = expected(name, i / partners, i % partners);
          EXPECT_TRUE(known > 0 ? std::abs(values[q][i] / known - 1) < 1e-3 : std::isnan(values[q][i]))
              << name << " of rank " << i / partners << ", partner " << i % partners << ": " << values[q][i] << ", not "
              << known;
        }
      }
    }
  }
}

TEST(Instruments, AmountsAreThoseOfTheShape) {
  const model::Shape shape{1, 8, 2, 2, {7}, 11, 3, 2, model::Dtype::fp32};
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD), peer = rank ^ 1;
  const auto instruments = make_instruments(MPI_COMM_WORLD, topology::detect(MPI_COMM_WORLD), shape, false);
  const auto expect = [](const Work& work, double amount) {
    EXPECT_EQ(work.amount, amount);
    work.once();
  };
  const std::vector<Kernel> kernels = instruments->kernels();
  expect(kernels.at(0).make(), 2 * 6 * 8 * 14);     // six tokens, hidden 8, gate and up of 7
  expect(kernels.at(1).make(), 2 * 2 * 3 * 3 * 8);  // two sequences of three tokens, scores and values, half of them
  expect(kernels.at(2).make(), 12 * (kernels::on_host ? 8 : 64) * mib);
  constexpr int weights = 8 * 24 + 8 * 8 + 8 * 14 + 7 * 8;
  expect(instruments->exchange(peer), 4 * weights);
  for (const auto kind : {schedule::Kind::all_gather, schedule::Kind::reduce_scatter})
    expect(instruments->collect(kind), 4 * weights);
  const double begin = instruments->now();
  EXPECT_GT(instruments->round_trip(peer), 0);
  EXPECT_GT(instruments->messages(peer, 3, 1000), 0);
  EXPECT_GT(instruments->now(), begin);
}
}  // namespace
}  // namespace minitaw::screen
