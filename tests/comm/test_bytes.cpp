// SPDX-License-Identifier: BSD-3-Clause
// What the transport counts is what schedule::bytes() plans: the communication of whole programs is executed
// with meaningless data, all lanes at once, or, where the transport wants it, in the order of the program.
#include "launches.hpp"
#include "model/layout.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
using schedule::Action;

/// Blocks of unequal width, so that slices of shards are unequal too.
model::Layout layout_of(const schedule::Program& program, int layers, model::Dtype dtype) {
  model::Shape shape{layers, 24, 3, 1, {}, 37, 5, 1, dtype};
  for (int l = 0; l < layers; ++l) shape.ffn.push_back(40 + 30 * l);
  return make_layout(shape, schedule::cut_of(program));
}

class Playback {
public:
  Playback(Transport& transport, const schedule::Program& program, const model::Layout& layout)
      : transport_(transport), rank_(program.ranks[transport.rank()]), layout_(layout) {}

  void execute(Lane lane) {
    for (const int action : actions_of(rank_, lane)) {
      execute(rank_.actions[action]);
      memory_[index_of(lane)].clear();
    }
  }

  /// All lanes by one thread, as the engine feeds device queues; returns before anything is complete.
  void issue() {
    const std::vector<int> order = issue_order(rank_);
    EXPECT_EQ(order.size(), rank_.actions.size()) << "some actions wait for each other";
    for (const int action : order) execute(rank_.actions[action]);
  }
private:
  [[nodiscard]] std::int64_t elements(const Action& a) const { return moved(a, layout_).count; }

  void execute(const Action& a) {
    if (!schedule::is_communication(a.kind)) return;
    auto& memory = memory_[index_of(a.lane)];
    memory.emplace_back(elements(a));
    auto* const data = reinterpret_cast<std::byte*>(memory.back().data());
    const Dtype dtype = dtype_of(a[schedule::Operand::buffer].cls, layout_.shape);
    const std::size_t bytes = static_cast<std::size_t>(elements(a)) * bytes_of(dtype);
    const Collective collective{a.communicator, a.peer, a.payload, dtype, data, elements(a)};
    const Message message{a.kind == Call::send, a.peer, a.payload, data, bytes};
    const auto started = schedule::is_collective(a.kind) ? transport_.start(a.lane, a.kind, collective)
                                                         : transport_.start(a.lane, message);
    finish({&started});
  }

  Transport& transport_;
  const schedule::RankProgram& rank_;
  const model::Layout& layout_;
  std::array<std::deque<std::vector<float>>, schedule::lanes> memory_;  ///< of what may be under way
};

void expect_planned_bytes(Kind kind, const schedule::Program& program, const model::Layout& layout) {
  std::unique_ptr<Nccl> nccl;
  if (kind == Kind::nccl) nccl = std::make_unique<Nccl>(program);
  const auto built = nccl == nullptr ? build(kind, program) : nullptr;
  Transport& transport = nccl == nullptr ? *built : *nccl->transport;
  Playback playback(transport, program, layout);
  if (nccl != nullptr) {
    nccl->fake.complete_later = true;
    playback.issue();
    nccl->fake.finish();
    EXPECT_EQ(nccl->fake.changes_of_queue, 0) << "a communicator belongs to one lane";
  } else {
    std::vector<std::jthread> lanes;
    for (std::size_t l = 1; l <= communication_lanes; ++l)
      lanes.emplace_back([&playback, l] { playback.execute(static_cast<Lane>(l)); });
  }
  const auto planned = bytes(program, layout);
  const std::vector<std::uint64_t> counted = transport.sent();
  for (int to = 0; to < planned.ranks(); ++to)
    for (int k = 0; k < schedule::traffic_kinds; ++k)
      EXPECT_EQ(counted[to * schedule::traffic_kinds + k], planned.at(transport.rank(), to, static_cast<Traffic>(k)))
          << program.schedule << " " << program.groups.text() << " to " << to << " "
          << name_of(static_cast<Traffic>(k));
}

MINITAW_ON_TRANSPORTS(Bytes, every_kind);

/// Eleven numbers of two bytes among all ranks, in slices of 6 and 5; 4, 4 and 3; or 3, 3, 3, 2 and 0 numbers. A gather
/// leaves out the next one's slice, a scatter the own; chains begin or end at rank 1 and go round from there.
TEST_P(Bytes, OfOneCallByHand) {
  World world(GetParam());
  if (world.ranks == 1) GTEST_SKIP() << "needs two ranks";
  using Sizes = std::map<int, std::vector<std::uint64_t>>;  // of each rank, by the number of ranks
  const Sizes gathered = {{2, {12, 10}}, {3, {14, 16, 14}}, {5, {16, 16, 18, 22, 16}}},
              scattered = {{2, {10, 12}}, {3, {14, 14, 16}}, {5, {16, 16, 16, 18, 22}}},
              out = {{2, {0, 22}}, {3, {0, 22, 22}}, {5, {0, 22, 22, 22, 22}}},
              in = {{2, {22, 0}}, {3, {22, 0, 22}}, {5, {22, 0, 22, 22, 22}}};
  const auto of_rank = [&](const Sizes& sizes) { return sizes.at(world.ranks)[world.rank]; };
  const auto expect = [&](Call call, int to, std::uint64_t bytes) {
    const std::vector<std::uint64_t> before = world.transport.sent();
    Values values(Dtype::bf16, 11);
    world.execute(Lane::inputs_group, call, values.collective(0, 1));
    std::vector<std::uint64_t> expected = before;
    expected[to * schedule::traffic_kinds + 1] += bytes;  // of gradients
    EXPECT_EQ(world.transport.sent(), expected) << name_of(call);
  };
  expect(Call::broadcast, world.next, of_rank(out));
  expect(Call::reduce, world.previous, of_rank(in));
  expect(Call::all_gather, world.next, of_rank(gathered));
  expect(Call::reduce_scatter, world.next, of_rank(scattered));
  expect(Call::all_reduce, world.next, of_rank(gathered) + of_rank(scattered));
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
TEST_P(Bytes, OfSchedulesAreAsPlanned) {
  const int ranks = ranks_of_job();
  const std::size_t stride = (ranks <= 3 ? 7 : 29) * (GetParam() == Kind::nccl ? 3 : 1);
  int turn = 0;
  for_each_program(ranks, stride, [&](const schedule::Request& request, const auto& program) {
    const Dtype dtype = dtypes[turn++ % 2];
    expect_planned_bytes(GetParam(), program, layout_of(program, request.layers, dtype));
  });
}
}  // namespace
}  // namespace minitaw::comm::test
