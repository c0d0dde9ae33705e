// What only the staged transport has: slots, their number, and pieces that go round them.
#include <gtest/gtest.h>

#include <array>

#include "base/error.hpp"
#include "comm/mpi/memory.hpp"
#include "world.hpp"

namespace minitaw::comm::test {
namespace {

using Staged = BuiltStaged<LazyCopier>;

/// Slots smaller than any message, in a number that no message divides.
constexpr std::size_t small_piece = 1028;

/// Messages of many kinds with both neighbours, checked.
class Neighbours {
public:
  Neighbours(Transport& transport, int ranks) : transport_(transport), ranks_(ranks) {}

  void exchange(int kinds, std::size_t bytes) {
    std::vector<Message> batch;
    std::vector<std::vector<std::byte>> out, in;
    for (int k = 0; k < kinds; ++k) {
      out.push_back(pattern(rank(), next(), payload(k), bytes + k));
      in.emplace_back(bytes + k, std::byte{0x77});
    }
    for (int k = 0; k < kinds; ++k) {
      batch.push_back({true, next(), payload(k), out[k].data(), out[k].size()});
      batch.push_back({false, previous(), payload(k), in[k].data(), in[k].size()});
    }
    transport_.exchange(Lane::operands_in, batch);
    for (int k = 0; k < kinds; ++k) {
      EXPECT_EQ(in[k], pattern(previous(), rank(), payload(k), bytes + k)) << kinds << " kinds, number " << k;
      EXPECT_EQ(out[k], pattern(rank(), next(), payload(k), bytes + k));
    }
  }

private:
  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] int next() const { return (rank() + 1) % ranks_; }
  [[nodiscard]] int previous() const { return (rank() + ranks_ - 1) % ranks_; }
  static Payload payload(int k) { return static_cast<Payload>(k + 1); }

  Transport& transport_;
  int ranks_;
};

TEST(StagedExchange, SharesSlotsAmongManyMessages) {
  const int ranks = ranks_of_job();
  // From one message with 16 slots to 12 with one each.
  Staged built(program(ranks), 16, small_piece);
  Neighbours neighbours(built.transport(), ranks);
  for (const int kinds : {1, 2, 3, 4, 5, 6})
    for (const std::size_t bytes : {1, 1028, 1029, 20'000, 100'001}) neighbours.exchange(kinds, bytes);
}

TEST(StagedExchange, LetsNoMessageWaitForAnother) {
  const int ranks = ranks_of_job();
  if (ranks < 3) GTEST_SKIP() << "needs three ranks";
  Staged built(program(ranks), 16, small_piece);
  Transport& transport = built.transport();
  // Rank 0 starts two messages together. Rank 1 takes the first only when rank 2 has had the second.
  constexpr std::size_t bytes = 50'000;
  std::vector<std::byte> a(bytes, std::byte{1}), b(bytes, std::byte{2});
  const auto send = [&](int to, auto& data) {
    return Message{true, to, Payload::weights, data.data(), bytes};
  };
  const auto receive = [&](int from, auto& data) {
    return Message{false, from, Payload::weights, data.data(), bytes};
  };
  if (transport.rank() == 0) transport.exchange(Lane::operands, std::array{send(1, a), send(2, b)});
  if (transport.rank() == 1) {
    transport.exchange(Lane::operands, std::array{receive(2, a)});
    EXPECT_EQ(a[bytes - 1], std::byte{2});
    transport.exchange(Lane::operands, std::array{receive(0, b)});
    EXPECT_EQ(b[bytes - 1], std::byte{1});
  }
  if (transport.rank() == 2) {
    transport.exchange(Lane::operands, std::array{receive(0, a)});
    transport.exchange(Lane::operands, std::array{send(1, a)});
  }
}

TEST(StagedExchange, RefusesMoreMessagesThanSlots) {
  const int ranks = ranks_of_job();
  Staged built(program(ranks), 16, small_piece);
  std::vector<std::byte> data(10);
  std::vector<Message> batch;
  for (int peer = 0; peer < 17; ++peer)
    batch.push_back({true, peer, Payload::weights, data.data(), data.size()});
  EXPECT_THROW(built.transport().exchange(Lane::operands, batch), LogicError);
}

TEST(StagedMemory, RefusesFewSlots) {
  LazyCopier copier;
  std::vector<std::byte> pinned(16 * small_piece - 1);
  EXPECT_THROW((void)mpi::staged_memory(pinned, small_piece, copier), LogicError);
  EXPECT_THROW((void)mpi::direct_memory(pinned, small_piece, copier), LogicError);
}

/// Collectives whose messages go round the slots many times.
TEST(StagedCollectives, GoRoundTheirSlots) {
  const int ranks = ranks_of_job();
  Staged built(program(ranks), 18, small_piece);
  Transport& transport = built.transport();
  const std::vector<int> everybody = communicators(ranks)[0].ranks;
  for (const std::int64_t elements : {257, 9'001, 30'011}) {
    const int root = static_cast<int>(elements) % ranks;
    const auto fresh = [&] { return contribution_of(transport.rank(), Scalar::fp32, elements); };
    const Range own = slice(elements, ranks, transport.rank());
    Values moved = fresh(), at_root = fresh(), scattered = fresh(), everywhere = fresh();
    transport.broadcast(Lane::operands, moved.collective(0, root));
    transport.reduce(Lane::operands, at_root.collective(0, root));
    transport.reduce_scatter(Lane::operands, scattered.collective(0));
    transport.all_reduce(Lane::operands, everywhere.collective(0));
    int wrong = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      const bool mine = i >= own.begin && i < own.begin + own.count, here = transport.rank() == root;
      const float sum = sum_of(everybody, i);
      wrong += moved.at(i) != contribution(root, i) || everywhere.at(i) != sum;
      wrong += at_root.at(i) != (here ? sum : contribution(transport.rank(), i));
      wrong += mine && scattered.at(i) != sum;
    }
    EXPECT_EQ(wrong, 0) << elements;
  }
}

/// The steps of all members of a ring over the same (never used) memory.
std::vector<std::vector<mpi::RingStep>> steps_of_all(const std::vector<int>& ranks, std::int64_t elements,
                                                     const mpi::Memory& memory) {
  std::vector<std::vector<mpi::RingStep>> all;
  const mpi::Buffer buffer{reinterpret_cast<std::byte*>(4096), elements, Scalar::bf16};
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    all.push_back(mpi::ring_steps({&ranks, 0, i, 0}, buffer, i, memory));
  return all;
}

std::vector<const std::byte*> places(const std::vector<mpi::RingStep>& steps, bool mpi::RingStep::* which) {
  std::vector<const std::byte*> places;
  for (const auto& step : steps)
    if (step.*which) places.push_back(step.piece.data());
  return places;
}

TEST(RingSteps, MatchFromMemberToMember) {
  for (const int members : {2, 3, 5})
    for (const std::int64_t elements : {1, 7, 50, 99, 1000})
      for (const std::size_t window : {1, 3, 1000}) {
        const std::vector<int> ranks(static_cast<std::size_t>(members));
        const auto all = steps_of_all(ranks, elements, {.piece_bytes = 10, .window = window});
        for (int i = 0; i < members; ++i)
          EXPECT_EQ(places(all[i], &mpi::RingStep::leaves),
                    places(all[(i + 1) % members], &mpi::RingStep::arrives));
      }
}

/// No member sends more than a window of pieces that it had before something must have arrived.
TEST(RingSteps, KeepToTheWindow) {
  const std::vector<int> ranks(4);
  for (const auto& steps : steps_of_all(ranks, 1000, {.piece_bytes = 10, .window = 3})) {
    std::size_t own = 0;
    for (const auto& step : steps) {
      own = step.arrives ? 0 : own + 1;
      EXPECT_LE(own, 3u);
    }
    EXPECT_EQ(places(steps, &mpi::RingStep::arrives).size(), 3 * 50u);
  }
}

TEST(PinnedShape, IsTheSameOnAllRanksAndBounded) {
  constexpr std::size_t mib = 1 << 20;
  EXPECT_EQ(mpi::pinned_shape(program(3), Lane::operands_in), (mpi::PinnedShape{16, mib}));
  EXPECT_EQ(mpi::pinned_bytes(program(3), 2), communication_lanes * 16 * mib);
  schedule::Program silent = program(2);
  for (auto& rank : silent.ranks)
    std::erase_if(rank.actions, [](const auto& a) { return a.lane == Lane::operands; });
  EXPECT_EQ(mpi::pinned_shape(silent, Lane::operands), mpi::PinnedShape{});
  EXPECT_EQ(mpi::pinned_bytes(silent, 0), (communication_lanes - 1) * 16 * mib);
}

}  // namespace
}  // namespace minitaw::comm::test
