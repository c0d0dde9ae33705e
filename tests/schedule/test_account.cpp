// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include "base/error.hpp"
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {
/// A small model of odd sizes.
model::Layout layout_for(
    int shards, int slices, int layers, model::Dtype dtype = model::Dtype::fp32) {
  return model::make_layout({layers, 12, 3, 1, 23, 37, 5, 3, dtype}, {shards, slices});
}

std::uint64_t sum_over_links(const ByteMatrix& matrix, Traffic kind) {
  std::uint64_t sum = 0;
  for (const auto& [pair, cell] : matrix.cells())
    sum += cell[index_of(kind)];
  return sum;
}

/// Ranks 0 1 | 2 | 3 4 5; every link has a number of its own.
TEST(Bytes, KnowTheBordersOfGroupsOfDifferentSizes) {
  const topology::Groups groups({2, 1, 3});
  constexpr std::array group = {0, 0, 1, 2, 2, 2};
  ByteMatrix matrix;
  std::uint64_t inside = 0;
  std::array<std::uint64_t, 3> leaving{}, entering{};
  for (int from = 0; from < 6; ++from)
    for (int to = 0; to < 6; ++to) {
      const std::uint64_t bytes = 1 + from * from * 6 + to * to * 5;
      const bool crosses = group[from] != group[to];
      matrix.add(from, to, Traffic::gradients, bytes);
      matrix.add(from, to, Traffic::weights, 1000 * bytes);
      inside += crosses ? 0 : bytes;
      leaving[group[from]] += crosses ? 1001 * bytes : 0;
      entering[group[to]] += crosses ? 1001 * bytes : 0;
    }
  for (const auto& [kind, factor] :
      {std::pair{Traffic::gradients, 1U}, {Traffic::weights, 1000U}}) {
    EXPECT_EQ(matrix.inside(groups, kind), factor * inside);
    EXPECT_EQ(1001 * matrix.between(groups, kind), factor * (leaving[0] + leaving[1] + leaving[2]));
  }
  for (int g = 0; g < 3; ++g)
    EXPECT_EQ(std::pair(matrix.by_group(groups)[g].out, matrix.by_group(groups)[g].in),
        std::pair(leaving[g], entering[g]));
}

// One block with H = 12, T = 15 tokens, three query heads and one of keys (d = 4), F = 7 and V
// = 37. Tensors begin at multiples of 64 elements: QKV 12 * 20 = 240 (256), output 144 (192), gate
// and up 12 * 14 = 168 (192), down 84 (128), two gains of 12 (64): 896. Embedding and LM head of
// 444 (448) each and a gain: 960 = 5 * 192.

/// What five ranks send each other by one action, in the ring order 2 0 3 1 4: bytes from the i-th
/// to the next one; of a reduction to the one before.
struct ByHand {
  std::string action;
  Traffic traffic;
  std::array<std::uint64_t, 5> links;
  model::Dtype dtype = model::Dtype::bf16;
  bool fp32_gradients = false;
};

const auto by_hand = std::to_array<ByHand>({
    // From rank 3 on, round to the rank before it.
    {"broadcast W0 w0 root r3", Traffic::weights, {1792, 0, 1792, 1792, 1792}},
    {"broadcast W0 w0 root r3", Traffic::weights, {3584, 0, 3584, 3584, 3584}, model::Dtype::fp32},
    {"broadcast W0[1/2] w0 root r2", Traffic::weights, {896, 896, 896, 896, 0}},
    {"reduce G0 g0 root r3", Traffic::gradients, {1792, 0, 1792, 1792, 1792}},
    {"reduce G0 g0 root r3",
        Traffic::gradients,
        {3584, 0, 3584, 3584, 3584},
        model::Dtype::bf16,
        true},
    {"reduce G0 t0 root r2", Traffic::gradients, {3584, 3584, 3584, 3584, 0}},
    // Slices of 180, 180, 180, 180 and 176: a gather leaves out that of the next one, a scatter the
    // own.
    {"all_gather W0 w0", Traffic::weights, {1432, 1432, 1432, 1440, 1432}},
    {"all_gather W0[1/2] w0", Traffic::weights, {716, 716, 716, 720, 716}},
    {"reduce_scatter G0 g0", Traffic::gradients, {1432, 1432, 1432, 1432, 1440}},
    {"reduce_scatter G0[0/2] p0", Traffic::gradients, {1432, 1432, 1432, 1432, 1440}},
    {"all_reduce G0 t0", Traffic::gradients, {5728, 5728, 5728, 5744, 5744}},
    {"all_gather E e0", Traffic::embeddings, {1536, 1536, 1536, 1536, 1536}},
    {"reduce_scatter EG f0", Traffic::embeddings, {3072, 3072, 3072, 3072, 3072}},
    {"all_reduce N n0", Traffic::gradients, {4, 8, 8, 8, 4}},  // one number, the first one's slice
    // Rank 0 alone, to rank 3; of a hidden state 15 * 12 numbers.
    {"send W0 h0 -> r3", Traffic::weights, {0, 1792, 0, 0, 0}},
    {"send W0[1/2] w0 -> r3", Traffic::weights, {0, 896, 0, 0, 0}},
    {"send G0 g0 -> r3", Traffic::gradients, {0, 1792, 0, 0, 0}},
    {"send G0 c0 -> r3", Traffic::gradients, {0, 3584, 0, 0, 0}, model::Dtype::bf16, true},
    {"send G0 p0 -> r3", Traffic::gradients, {0, 3584, 0, 0, 0}},
    {"send A0 m0 x0 -> r3", Traffic::activations, {0, 360, 0, 0, 0}},
    {"send D0 m0 x0 -> r3", Traffic::activations, {0, 720, 0, 0, 0}, model::Dtype::fp32},
});

std::string program_of(const std::string& action, bool alone) {
  std::string text = "program one\nshards 1\nmicro_batches 1\nembeddings_parts 5\ngroups "
                     "5\ncommunicator ring 2 0 3 1 4\n";
  for (int r = 0; r < 5; ++r)
    text += fmt::format("rank {} slots owned\n{}",
        r,
        alone && r > 0 ? "" : fmt::format("   0 inputs_group    {}\n", action));
  return text;
}

model::Layout one_block(model::Dtype dtype = model::Dtype::bf16, bool fp32_gradients = false) {
  model::Shape shape{1, 12, 3, 1, 7, 37, 5, 3, dtype};
  shape.fp32_gradients = fp32_gradients;
  return model::make_layout(shape, {1, 5});
}

TEST(Bytes, OfEveryKindOfActionByHand) {
  constexpr std::array ring = {2, 0, 3, 1, 4};
  for (const ByHand& row : by_hand) {
    const bool message = row.action.starts_with("send"),
               backwards = row.action.starts_with("reduce ");
    const std::string action = row.action + (message ? "" : " @ring");
    const ByteMatrix found =
        bytes(parse_program(program_of(action, message)), one_block(row.dtype, row.fp32_gradients));
    ByteMatrix expected;
    for (int i = 0; i < 5; ++i) {
      const int from = ring[i], to = ring[(i + 1) % 5];
      expected.add(backwards ? to : from, backwards ? from : to, row.traffic, row.links[i]);
    }
    EXPECT_EQ(found.cells(), expected.cells()) << action;
  }
}

TEST(Moved, ByWhatStaysOnARankByHand) {
  const auto moved_by = [](const char* action) {
    return moved(parse_program(program_of(action, true)).ranks[0].actions[0], one_block());
  };
  EXPECT_EQ(moved_by("add G0 g0 t0"), (Range{0, 896}));
  EXPECT_EQ(moved_by("add G0[1/2] g0 +p0"), (Range{448, 448}));
  EXPECT_EQ(moved_by("load W0[3/7] h0 k0"), (Range{384, 128}));
  EXPECT_EQ(moved_by("load G0 p0 g0"), (Range{0, 896}));
  EXPECT_THROW((void)moved({}, one_block()), LogicError);
}

std::uint64_t bytes_of(const Footprint& footprint, Memory kind) {
  return footprint.by_kind[static_cast<std::size_t>(kind)];
}

constexpr std::size_t rounded(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

std::size_t sum_of(const std::vector<std::size_t>& parts) {
  std::size_t sum = 0;
  for (const std::size_t bytes : parts)
    sum += rounded(bytes);
  return sum;
}

TEST(MemoryAccount, RelayByHand) {
  for (const model::Dtype dtype : {model::Dtype::fp32, model::Dtype::bf16}) {
    const model::Layout layout = layout_for(2, 2, 3, dtype);
    const std::size_t e = model::bytes_of(dtype), s0 = layout.shards[0].elements,
                      s1 = layout.shards[1].elements, ends = layout.embeddings.elements;
    ASSERT_NE(s0, s1);
    for (const Footprint& f : memory(parse_program(hand_written::relay), layout)) {
      EXPECT_EQ(bytes_of(f, Memory::weights), sum_of({s0 * e, s1 * e, ends * e}));
      EXPECT_EQ(f.staging, 2 * piece_bytes);  // the inputs_recv lane scatters a sum
      EXPECT_EQ(bytes_of(f, Memory::buffers), f.scalars + f.workspace + f.staging);
      EXPECT_EQ(f.total(), std::accumulate(f.by_kind.begin(), f.by_kind.end(), std::uint64_t{0}));
    }
    const Footprint f = memory(parse_program(hand_written::relay), layout)[0];
    // Its gradient slot holds shard 1 first, then shard 0.
    EXPECT_EQ(bytes_of(f, Memory::gradients), sum_of({s0 * 4, std::max(s0, s1) * e, ends * 4}));
    const std::size_t states = dtype == model::Dtype::fp32 ? 2 : 3;
    EXPECT_EQ(f.optimiser,
        (std::vector{rounded(states * s0 * 4), rounded(states * layout.embeddings.part * 4)}));
  }
}

/// What moves or passes through is of the type of gradients in transit, sums are fp32, and kept are
/// halves.
TEST(MemoryAccount, OfWhatIsKeptAndInTransitByHand) {
  std::array<std::uint64_t, 2> gradients{};
  for (const bool wide : {false, true}) {
    const Program program =
        build({parse_spec("tawpipe:fetch=step:rails=2:reduce=group:reshard=group"),
            topology::Groups({2, 2}),
            8,
            4});
    model::Shape shape{4, 12, 3, 1, 7, 37, 5, 3, model::Dtype::bf16};
    shape.fp32_gradients = wide;
    const model::Layout layout = model::make_layout(shape, cut_of(program));
    const std::size_t s = layout.shards[0].elements, transit = s * (wide ? 4 : 2),
                      ends = layout.embeddings.elements;
    const std::map<char, std::size_t> expected = {{'h', 2 * s},
        {'t', 4 * s},
        {'w', 2 * s},
        {'k', s},
        {'p', 2 * s},
        {'g', transit},
        {'c', transit},
        {'e', 2 * ends},
        {'f', 4 * ends}};
    for (const Footprint& f : memory(program, layout)) {
      std::map<char, std::size_t> found;
      for (const SlotSize& slot : f.slots)
        if (const auto at = expected.find(letter_of(slot.slot.cls)); at != expected.end()) {
          EXPECT_EQ(slot.bytes, rounded(at->second)) << at->first;
          found[at->first] += slot.bytes;
        }
      EXPECT_EQ(found.size(), expected.size());
      EXPECT_EQ(bytes_of(f, Memory::weights), found['h'] + found['w'] + found['k'] + found['e']);
      EXPECT_EQ(bytes_of(f, Memory::gradients),
          found['t'] + found['g'] + found['c'] + found['p'] + found['f']);
    }
    gradients[wide ? 1 : 0] = sum_over_links(bytes(program, layout), Traffic::gradients);
  }
  EXPECT_EQ(gradients[1], 2 * gradients[0]);
}

/// Around the six ranks goes a number, to its sum and back to all, through a lane that sums nothing
/// else.
TEST(MemoryAccount, ClippingMovesOneNumberThatEveryRankHas) {
  Request request{parse_spec("zb1"), topology::Groups({2, 1, 3}), 12, 6};
  const Program open = build(request);
  request.clips = true;
  const Program clipped = build(request);
  const model::Layout layout = model::make_layout(layout_for(6, 2, 6).shape, cut_of(open));
  EXPECT_EQ(sum_over_links(bytes(clipped, layout), Traffic::gradients),
      sum_over_links(bytes(open, layout), Traffic::gradients) + 2 * 5 * 4);
  for (std::size_t r = 0; r < 6; ++r)
    EXPECT_EQ(bytes_of(memory(clipped, layout)[r], Memory::buffers),
        bytes_of(memory(open, layout)[r], Memory::buffers) + 256 + 512 * 8 + 2 * piece_bytes);
}

// Bytes of T = 15 tokens with H = 12, d = 4, three query heads and one of keys, V = 37.
constexpr std::size_t hidden = 15 * 12 * 4, qkv = 15 * 20 * 4, scores = 15 * 3 * 4, rows = 15 * 4,
                      gain = 12 * 4;

/// What F keeps, what B leaves for W beside it, and what kernels need besides.
struct Kept {
  std::vector<std::size_t> saved, deferred, scratch;
};

/// Of a block of stage r of six, whose backward visits are all divided. F = 71.
Kept kept_by_hand(model::Recompute recompute, int stage) {
  const std::size_t gate_and_up = 15 * 2 * 71 * 4, product = 15 * 71 * 4;
  Kept kept{{hidden}, {hidden, gain, product, hidden, qkv, 15 * gain, 15 * gain}, {hidden}};
  const auto add = [](auto& to, const std::vector<std::size_t>& parts) {
    to.insert(to.end(), parts.begin(), parts.end());
  };
  const bool block = recompute == model::Recompute::block,
             none = recompute == model::Recompute::none;
  add(block ? kept.deferred : kept.saved, {hidden});  // the output of attention
  add(block ? kept.scratch : kept.saved, {scores});
  if (block)
    add(kept.scratch, {hidden});
  add(none ? kept.saved : kept.scratch, {rows, qkv, hidden, rows});
  if (none)
    add(kept.saved, {gate_and_up});
  if (none)
    add(kept.deferred, {gain});
  else
    add(kept.deferred, {rows, hidden, gate_and_up});

  // Either half of a block: the loss of 15 tokens, and the positions by token, take less.
  const std::vector<std::size_t> attention = {hidden, scores};
  const auto feed_forward = none ? std::vector{product} : std::vector{gate_and_up, product};
  add(kept.scratch, sum_of(attention) > sum_of(feed_forward) ? attention : feed_forward);
  add(kept.scratch, {15 * 4 * 4 /* rotation */});
  if (stage == 0 || stage == 5)
    add(kept.scratch, {rows /* tokens */});
  if (stage == 5)
    add(kept.scratch, {15 * gain /* of the final norm */});
  return kept;
}

/// Six stages of ZB-H1 with one or two blocks: all keep what F saves of six micro-batches, stage r
/// what B leaves of r + 1, and two states.
TEST(MemoryAccount, PipelineOfSixStagesByHand) {
  const Program program = build({parse_spec("zb1"), topology::Groups({2, 1, 3}), 12, 9});
  for (const model::Recompute recompute :
      {model::Recompute::block, model::Recompute::keep_attention, model::Recompute::none}) {
    model::Shape shape = layout_for(6, 2, 9).shape;
    shape.recompute = recompute;
    shape.ffn = 71;
    const model::Layout layout = model::make_layout(shape, cut_of(program));
    const std::vector<Footprint> all = memory(program, layout);
    for (int r = 0; r < 6; ++r) {
      const std::size_t shard = layout.shards[r].elements,
                        ends = r % 5 == 0 ? layout.embeddings.part : 0;
      const Kept kept = kept_by_hand(recompute, r);
      const std::size_t of_block = 6 * sum_of(kept.saved) + (r + 1) * sum_of(kept.deferred);
      EXPECT_EQ(bytes_of(all[r], Memory::activations),
          layout.shards[r].layers * of_block + 2 * rounded(hidden));
      EXPECT_EQ(bytes_of(all[r], Memory::gradients), sum_of({shard * 4, ends * 4}));
      EXPECT_EQ(bytes_of(all[r], Memory::weights), sum_of({shard * 4, ends * 4}));
      EXPECT_EQ(bytes_of(all[r], Memory::optimiser), sum_of({shard * 8, ends * 8}));
      EXPECT_EQ(bytes_of(all[r], Memory::buffers), 256 + sum_of(kept.scratch));
      // 15 inputs, targets and positions, where up to 15 tokens begin, and their end, in whole
      // eights; of twelve micro-batches
      EXPECT_EQ(bytes_of(all[r], Memory::tokens), r % 5 == 0 ? 12U * 4 * (3 * 15 + 16 + 1) : 0U);
    }
  }
}

TEST(TickAccount, ByHand) {
  const Ticks pipeline = ticks(parse_program(hand_written::pipeline));
  EXPECT_EQ(std::tuple(pipeline.total, pipeline.busy, pipeline.idle(1)),
      std::tuple(3, std::vector{2, 2}, 1));
  const Ticks relay = ticks(parse_program(hand_written::relay));  // the last gather is in tick 4
  EXPECT_EQ(std::tuple(relay.total, relay.busy), std::tuple(5, std::vector{4, 4}));
  const std::string text = "program one\nshards 1\nmicro_batches 1\ngroups 1\nrank 0 slots owned\n";
  EXPECT_EQ(ticks(parse_program(text + "   5 compute         F s0 m0 h0 a0 x0\n")).total, 1);
  EXPECT_EQ(ticks(parse_program(text + "   5 compute         join\n")).total, 0);
}
}  // namespace
}  // namespace minitaw::schedule
