// Both communication lanes at once, each in its own thread, with delays that differ from rank to rank.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "world.hpp"

namespace minitaw::comm::test {
namespace {

class Lanes : public OnEvery {};
INSTANTIATE_TEST_SUITE_P(On, Lanes, testing::Values(Kind::host, Kind::staged, Kind::staged_threads),
                         name_of_param);

/// Plays a sequence of operations that all ranks draw alike; returns how many values came out wrong.
class Player {
public:
  Player(World& world, Lane lane)
      : world_(world), lane_(lane), plan_(static_cast<unsigned>(lane)), delay_(world.rank * 7 + 1) {}

  int play(int operations) {
    for (int k = 0; k < operations; ++k) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_() % 300));
      const int communicator = static_cast<int>(plan_() % 5);
      const auto elements = static_cast<std::int64_t>(plan_() % 90'000);
      const std::size_t kind = plan_() % 6, root = plan_();
      if (kind == 5) message(elements);
      else if (world_.position(communicator) >= 0) collective(kind, communicator, root, elements);
    }
    return wrong_;
  }

private:
  void message(std::int64_t elements) {
    const int next = (world_.rank + 1) % world_.ranks,
              previous = (world_.rank + world_.ranks - 1) % world_.ranks;
    Values out = contribution_of(world_.rank, Scalar::fp32, elements), in(Scalar::fp32, elements);
    const auto bytes = static_cast<std::size_t>(4 * elements);
    // of its own: messages of a payload between two ranks are on one lane
    const auto payload = lane_ == Lane::operands ? Payload::activation : Payload::activation_grad;
    const std::array batch{Message{true, next, payload, out.data(), bytes},
                           Message{false, previous, payload, in.data(), bytes}};
    world_.transport.exchange(lane_, batch);
    wrong_ += in != contribution_of(previous, Scalar::fp32, elements);
  }

  void collective(std::size_t kind, int communicator, std::size_t root, std::int64_t elements) {
    const auto& members = world_.members(communicator);
    const int root_rank = members[root % members.size()];
    Values values = contribution_of(world_.rank, Scalar::fp32, elements);
    Collective call = values.collective(communicator, root_rank);
    const Slice own = slice(elements, world_.size(communicator), world_.position(communicator));
    auto& transport = world_.transport;
    if (kind == 0) transport.broadcast(lane_, call);
    if (kind == 1) transport.reduce(lane_, call);
    if (kind == 2) transport.all_gather(lane_, call);
    if (kind == 3) transport.reduce_scatter(lane_, call);
    if (kind == 4) transport.all_reduce(lane_, call);
    for (std::int64_t i = own.begin; i < own.begin + own.count; ++i) {
      const bool sum = kind >= 3 || (kind == 1 && world_.rank == root_rank);
      const int from = kind == 0 ? root_rank : world_.rank;
      wrong_ += values.at(i) != (sum ? sum_of(members, i) : contribution(from, i));
    }
  }

  World& world_;
  Lane lane_;
  std::mt19937 plan_, delay_;
  int wrong_ = 0;
};

TEST_P(Lanes, DoNotDisturbEachOther) {
  World world(GetParam());
  Player intra(world, Lane::operands), inter(world, Lane::operands_in);
  int wrong_intra = -1, wrong_inter = -1;
  {
    std::jthread first([&] { wrong_intra = intra.play(40); });
    std::jthread second([&] { wrong_inter = inter.play(40); });
    for (int k = 0; k < 20; ++k) {  // a watching thread may read the counters meanwhile
      (void)world.transport.sent();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EXPECT_EQ(wrong_intra, 0);
  EXPECT_EQ(wrong_inter, 0);
}

}  // namespace
}  // namespace minitaw::comm::test
