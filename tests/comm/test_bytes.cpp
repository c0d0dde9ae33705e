// SPDX-License-Identifier: BSD-3-Clause
// What the transports count, call by call, by hand. Whole programs through pinned slots with meaningless data, all
// lanes at once, come to their end with the bytes that schedule::bytes() plans; over the host's transport whole steps
// do (harness_job).
#include "launches.hpp"
#include "model/layout.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
/// Blocks of unequal width, so that slices of shards are unequal too.
model::Layout layout_of(const schedule::Program& program, int layers, model::Dtype dtype) {
  model::Shape shape{layers, 24, 3, 1, {}, 37, 5, 1, dtype};
  for (int l = 0; l < layers; ++l) shape.ffn.push_back(40 + 30 * l);
  return make_layout(shape, schedule::cut_of(program));
}

/// Executes what a lane moves, one after the other.
void execute(Transport& transport, Lane lane, const schedule::RankProgram& rank, const model::Layout& layout) {
  for (const int number : actions_of(rank, lane)) {
    const schedule::Action& a = rank.actions[number];
    if (!schedule::is_communication(a.kind)) continue;
    const std::int64_t elements = moved(a, layout).count;
    Values values(dtype_of(a[schedule::Operand::buffer].cls, layout.shape), elements);
    Collective collective = values.collective(a.communicator, a.peer);
    collective.payload = a.payload;
    const auto started = schedule::is_collective(a.kind)
                             ? transport.start(lane, a.kind, collective)
                             : transport.start(lane, values.message(a.kind == Call::send, a.peer, a.payload));
    finish({&started});
  }
}

void expect_planned_bytes(const schedule::Program& program, const model::Layout& layout) {
  const std::shared_ptr<Transport> transport = build(Kind::staged, program);
  const schedule::RankProgram& rank = program.ranks[transport->rank()];
  {
    std::vector<std::jthread> lanes;
    for (std::size_t l = 1; l <= communication_lanes; ++l)
      lanes.emplace_back([&, l] { execute(*transport, static_cast<Lane>(l), rank, layout); });
  }
  const auto planned = bytes(program, layout);
  const std::vector<std::uint64_t> counted = transport->sent();
  for (int to = 0; to < planned.ranks(); ++to)
    for (int k = 0; k < schedule::traffic_kinds; ++k)
      EXPECT_EQ(counted[to * schedule::traffic_kinds + k], planned.at(transport->rank(), to, static_cast<Traffic>(k)))
          << program.schedule << " " << program.groups.text() << " to " << to << " "
          << name_of(static_cast<Traffic>(k));
}

MINITAW_ON_TRANSPORTS(Bytes, every_kind);

/// Eleven numbers of two bytes among all ranks, in slices of 6 and 5; 4, 4 and 3; or 3, 3, 3, 2 and 0 numbers. A gather
/// leaves out the next one's slice, a scatter the own; chains begin or end at member 1 and go round from there.
TEST_P(Bytes, OfOneCallByHand) {
  World world(GetParam());
  if (world.ranks == 1) GTEST_SKIP() << "needs two ranks";
  using Sizes = std::map<int, std::vector<std::uint64_t>>;  // of each member, by the number of ranks
  const Sizes gathered = {{2, {12, 10}}, {3, {14, 16, 14}}, {5, {16, 16, 18, 22, 16}}},
              scattered = {{2, {10, 12}}, {3, {14, 14, 16}}, {5, {16, 16, 16, 18, 22}}},
              out = {{2, {0, 22}}, {3, {0, 22, 22}}, {5, {0, 22, 22, 22, 22}}},
              in = {{2, {22, 0}}, {3, {22, 0, 22}}, {5, {22, 0, 22, 22, 22}}};
  std::vector<std::uint64_t> expected = world.transport.sent();
  for (const int backwards : {0, 1}) {  // the communicator; ranks are its members, the other way round
    const int member = backwards == 0 ? world.rank : world.ranks - 1 - world.rank;
    const int next = backwards == 0 ? world.next : world.previous, last = backwards == 0 ? world.previous : world.next;
    const auto expect = [&](Call call, int to, const std::vector<const Sizes*>& sizes) {
      Values values(Dtype::bf16, 11);
      world.execute(Lane::inputs_group, call, values.collective(backwards, world.members(backwards)[1]));
      for (const Sizes* each : sizes) expected[to * schedule::traffic_kinds + 1] += each->at(world.ranks)[member];
      EXPECT_EQ(world.transport.sent(), expected) << name_of(call);
    };
    expect(Call::broadcast, next, {&out});
    expect(Call::reduce, last, {&in});
    expect(Call::all_gather, next, {&gathered});
    expect(Call::reduce_scatter, next, {&scattered});
    expect(Call::all_reduce, next, {&gathered, &scattered});
  }
}

TEST_P(Bytes, OfMessagesAreOfTheKindOfTheirPayload) {
  World world(GetParam());
  if (!world.has_messages()) GTEST_SKIP() << "needs two ranks";
  std::vector<std::pair<Payload, int>> kinds = {{Payload::weights, 0}, {Payload::gradient, 1}, {Payload::activation, 2},
      {Payload::activation_grad, 2}, {Payload::embeddings, 3}, {Payload::embeddings_gradient, 3},
      {Payload::squares, 1}};
  if (world.nccl != nullptr) kinds.resize(2);  // which it has connected
  std::vector<std::uint64_t> expected(world.transport.sent().size());
  std::size_t bytes = 3;
  for (const auto& [payload, kind] : kinds) {
    std::vector<std::byte> out(bytes), in(bytes);
    world.exchange(
        {{true, world.next, payload, out.data(), bytes}, {false, world.previous, payload, in.data(), bytes}});
    expected[world.next * schedule::traffic_kinds + kind] += bytes;
    bytes *= 3;
  }
  EXPECT_EQ(world.transport.sent(), expected);
}

/// A part of all programs for each number of ranks, in one precision each: many processes share few cores. Of all of
/// them, test_launches.cpp says whether calls fit together.
TEST(BytesStaged, OfSchedulesAreAsPlanned) {
  const int ranks = ranks_of_job();
  const std::size_t stride = ranks <= 3 ? 7 : 29;
  int turn = 0;
  for_each_program(ranks, stride, [&](const schedule::Request& request, const auto& program) {
    const Dtype dtype = dtypes[turn++ % 2];
    expect_planned_bytes(program, layout_of(program, request.layers, dtype));
  });
}
}  // namespace
}  // namespace minitaw::comm::test
