// SPDX-License-Identifier: BSD-3-Clause
// What every transport counts, call by call, by hand. Of whole steps harness_job compares it with
// the plan.
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
MINITAW_ON_TRANSPORTS(Bytes, every_kind);

/// Eleven numbers of two bytes among all ranks, in slices of 6 and 5; 4, 4 and 3; 3, 3, 3 and 2; or
/// 3, 3, 3, 2 and 0 numbers. A gather leaves out the next one's slice, a scatter the own; chains
/// begin or end at member 1 and go round from there.
TEST_P(Bytes, OfOneCallByHand) {
  World world(GetParam());
  if (world.ranks == 1)
    GTEST_SKIP() << "needs two ranks";
  using Sizes = std::map<int, std::vector<std::uint64_t>>;  // by the number of ranks, of each
  Sizes gathered = {{2, {12, 10}},
            {3, {14, 16, 14}},
            {4, {16, 16, 18, 16}},
            {5, {16, 16, 18, 22, 16}}},
        scattered = {
            {2, {10, 12}}, {3, {14, 14, 16}}, {4, {16, 16, 16, 18}}, {5, {16, 16, 16, 18, 22}}};
  std::vector<std::uint64_t> expected = world.transport.sent();
  for (const int backwards : {0, 1}) {  // the communicator of all ranks, the other way round
    const int member = backwards == 0 ? world.rank : world.ranks - 1 - world.rank;
    const int next = backwards == 0 ? world.next : world.previous,
              last = backwards == 0 ? world.previous : world.next;
    const std::uint64_t gather = gathered[world.ranks][member],
                        scatter = scattered[world.ranks][member];
    for (const auto& [call, to, bytes] :
        {std::tuple{Call::broadcast, next, std::uint64_t{member == 0 ? 0U : 22U}},
            {Call::reduce, last, member == 1 ? 0 : 22},
            {Call::all_gather, next, gather},
            {Call::reduce_scatter, next, scatter},
            {Call::all_reduce, next, gather + scatter}}) {
      Values values(Dtype::bf16, 11);
      world.execute(
          Lane::inputs_group, call, values.collective(backwards, world.members(backwards)[1]));
      expected[to * schedule::traffic_kinds + 1] += bytes;
      EXPECT_EQ(world.transport.sent(), expected) << name_of(call);
    }
  }
}

TEST_P(Bytes, OfMessagesAreOfTheKindOfTheirPayload) {
  World world(GetParam());
  if (world.ranks == 1)
    GTEST_SKIP() << "needs two ranks";
  std::vector<std::uint64_t> expected = world.transport.sent();
  std::size_t bytes = 3;
  for (const auto& [payload, kind] : {std::pair{Payload::weights, 0},
           {Payload::gradient, 1},
           {Payload::activation, 2},
           {Payload::activation_grad, 2},
           {Payload::embeddings, 3},
           {Payload::embeddings_gradient, 3},
           {Payload::squares, 1}}) {
    if (world.kind == Kind::nccl && kind > 1)
      continue;  // it has not connected them
    std::vector<std::byte> out(bytes), in(bytes);
    world.exchange({{true, world.next, payload, out.data(), bytes},
        {false, world.previous, payload, in.data(), bytes}});
    expected[world.next * schedule::traffic_kinds + kind] += bytes;
    bytes *= 3;
  }
  EXPECT_EQ(world.transport.sent(), expected);
}
}  // namespace
}  // namespace minitaw::comm::test
