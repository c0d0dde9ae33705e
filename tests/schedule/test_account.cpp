// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <numeric>
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/parse.hpp"
#include "schedule/shapes.hpp"

namespace minitaw::schedule {
namespace {
/// Ranks 0 1 | 2 | 3 4 5: from rank to rank.
TEST(Bytes, KnowTheBordersOfGroupsOfDifferentSizes) {
  const Groups groups({2, 1, 3});
  ByteMatrix matrix;
  for (const auto& [from, to, bytes] :
      {std::tuple{0, 1, 1}, {1, 2, 10}, {2, 5, 100}, {5, 0, 1000}, {4, 3, 10000}}) {
    matrix.add(from, to, Traffic::gradients, bytes);
    matrix.add(from, to, Traffic::weights, 2 * bytes);
  }
  EXPECT_EQ(matrix.inside(groups, Traffic::gradients), 10001U);
  EXPECT_EQ(matrix.between(groups, Traffic::weights), 2220U);
  std::vector<std::uint64_t> both;
  for (const auto& [out, in] : matrix.by_group(groups))
    both.insert(both.end(), {out, in});
  EXPECT_EQ(both, (std::vector<std::uint64_t>{30, 3000, 300, 30, 3000, 300}));
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

const ByHand by_hand[] = {
    // From rank 3 on, round to the rank before it.
    {"broadcast W0 w0 root r3", Traffic::weights, {1792, 0, 1792, 1792, 1792}},
    {"reduce G0 g0 root r3", Traffic::gradients, {1792, 0, 1792, 1792, 1792}},
    {"reduce G0 t0 root r2", Traffic::gradients, {3584, 3584, 3584, 3584, 0}},
    // Slices of 180, 180, 180, 180 and 176: a gather leaves out that of the next one, a scatter the
    // own.
    {"all_gather W0 w0", Traffic::weights, {1432, 1432, 1432, 1440, 1432}},
    {"all_gather W0[1/2] w0", Traffic::weights, {716, 716, 716, 720, 716}},
    {"reduce_scatter G0 g0", Traffic::gradients, {1432, 1432, 1432, 1432, 1440}},
    {"all_reduce G0 t0", Traffic::gradients, {5728, 5728, 5728, 5744, 5744}},
    {"all_gather E e0", Traffic::embeddings, {1536, 1536, 1536, 1536, 1536}},
    {"reduce_scatter EG f0", Traffic::embeddings, {3072, 3072, 3072, 3072, 3072}},
    {"all_reduce N n0", Traffic::gradients, {4, 8, 8, 8, 4}},  // one number, the first one's slice
    // Rank 0 alone, to rank 3; of a hidden state 15 * 12 numbers.
    {"send W0 h0 -> r3", Traffic::weights, {0, 1792, 0, 0, 0}},
    {"send G0 g0 -> r3", Traffic::gradients, {0, 1792, 0, 0, 0}},
    {"send G0 c0 -> r3", Traffic::gradients, {0, 3584, 0, 0, 0}, model::Dtype::bf16, true},
    {"send G0 p0 -> r3", Traffic::gradients, {0, 3584, 0, 0, 0}},
    {"send A0 m0 x0 -> r3", Traffic::activations, {0, 360, 0, 0, 0}},
    {"send D0 m0 x0 -> r3", Traffic::activations, {0, 720, 0, 0, 0}, model::Dtype::fp32},
};

TEST(Bytes, OfEveryKindOfActionByHand) {
  constexpr std::array ring = {2, 0, 3, 1, 4};
  for (const auto& [action, traffic, links, dtype, fp32_gradients] : by_hand) {
    const bool message = action.starts_with("send"), backwards = action.starts_with("reduce ");
    std::string text = "shards 1\nembeddings_parts 5\ngroups 5\ncommunicator ring 2 0 3 1 4\n";
    for (int r = 0; r < 5; ++r) {
      text += "rank slots owned\n";
      if (r == 0 || !message)
        text += "0 inputs_group " + action + (message ? "\n" : " @ring\n");
    }
    model::Shape shape{1, 12, 3, 1, 7, 37, 5, 3, dtype};
    shape.fp32_gradients = fp32_gradients;
    ByteMatrix expected;
    for (int i = 0; i < 5; ++i) {
      const int from = ring[i], to = ring[(i + 1) % 5];
      expected.add(backwards ? to : from, backwards ? from : to, traffic, links[i]);
    }
    EXPECT_EQ(
        bytes(parse_program(text), model::make_layout(shape, {1, 5})).cells(), expected.cells())
        << action;
  }
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

/// Two ranks own a half each of shards of two blocks and of one. Gathered weights and gradients
/// begin with either of them.
TEST(MemoryAccount, ShardedByHand) {
  const Program program = build({parse_spec("fsdp:unit=2"), Groups({2}), 2, 3});
  for (const model::Dtype dtype : {model::Dtype::fp32, model::Dtype::bf16}) {
    const Layout layout = model::make_layout({3, 12, 3, 1, 23, 37, 5, 3, dtype}, cut_of(program));
    const std::size_t e = model::bytes_of(dtype), large = layout.shards[0].elements,
                      small = layout.shards[1].elements, ends = layout.embeddings.elements,
                      states = 4 * (dtype == model::Dtype::fp32 ? 2 : 3);
    for (const Footprint& f : memory(program, layout)) {
      EXPECT_EQ(bytes_of(f, Memory::weights),
          sum_of({large * e / 2, small * e / 2, large * e, large * e, ends * e}));
      EXPECT_EQ(bytes_of(f, Memory::gradients),
          sum_of({large * 2, small * 2, large * e, small * e, ends * 4}));
      EXPECT_EQ(f.optimiser,
          (std::vector{rounded(states * large / 2),
              rounded(states * small / 2),
              rounded(states * ends / 2)}));
      EXPECT_EQ(f.staging, 2 * piece_bytes);  // one lane scatters sums
      EXPECT_EQ(bytes_of(f, Memory::buffers), f.scalars + f.workspace + f.staging);
      EXPECT_EQ(f.total(), std::accumulate(f.by_kind.begin(), f.by_kind.end(), std::uint64_t{0}));
    }
  }
}

/// What moves or passes through is of the type of gradients in transit, sums are fp32, and kept are
/// halves.
TEST(MemoryAccount, OfWhatIsKeptAndInTransitByHand) {
  const Program program = build(
      {parse_spec("tawpipe:fetch=step:rails=2:reduce=group:reshard=group"), Groups({2, 2}), 8, 4});
  model::Shape shape{4, 12, 3, 1, 7, 37, 5, 3, model::Dtype::bf16};
  std::vector<std::uint64_t> moved;
  for (const bool wide : {false, true}) {
    shape.fp32_gradients = wide;
    const Layout layout = model::make_layout(shape, cut_of(program));
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
      for (const auto& [slot, bytes] : f.slots) {
        const char letter = letter_of(slot.cls);
        if (!expected.contains(letter))
          continue;
        EXPECT_EQ(bytes, rounded(expected.at(letter))) << letter;
        found[letter] += bytes;
      }
      EXPECT_EQ(bytes_of(f, Memory::weights), found['h'] + found['w'] + found['k'] + found['e']);
      EXPECT_EQ(bytes_of(f, Memory::gradients),
          found['t'] + found['g'] + found['c'] + found['p'] + found['f']);
      EXPECT_EQ(found.size(), expected.size());
    }
    moved.push_back(bytes(program, layout).inside(Groups({4}), Traffic::gradients));
  }
  EXPECT_EQ(moved[1], 2 * moved[0]);
}

/// What each rank has of tied embeddings, and updates; bytes that all send of them.
struct TiedByHand {
  const char* spec;
  Groups groups;
  int replicas, context;
  std::vector<std::size_t> elements, updated;
  std::uint64_t bytes;
};

// A matrix of 37 x 12 = 444 (448) and a gain: 512 elements. Two ranks that sum 512 numbers in fp32
// send 4096 bytes; that scatter their sum, 2048; that gather 512 in bf16, 1024.
const std::vector<TiedByHand> tied_by_hand = {
    {"1f1b", Groups({3}), 1, 1, {512, 0, 512}, {512, 0, 512}, 4096},
    // over replicas of each end, and between the ends of each replica
    {"zb1", Groups({2, 2}), 2, 1, {512, 512}, {512, 512}, 2 * 4096 + 2 * 4096},
    // inside of both context groups, and between their ranks of one number
    {"zb2", Groups({4}), 1, 2, {512, 512, 512, 512}, {512, 512, 512, 512}, 2 * 4096 + 2 * 4096},
    {"zbv", Groups({2}), 1, 1, {512, 0}, {512, 0}, 0},
    {"ddp", Groups({2}), 1, 1, {512, 512}, {512, 512}, 4096},
    {"fsdp", Groups({2}), 1, 1, {512, 512}, {256, 256}, 2048 + 1024},
    {"tawpipe", Groups({1, 1}), 1, 1, {512, 512}, {256, 256}, 2048 + 1024},
    {"weipipe", Groups({2}), 1, 1, {512, 512}, {256, 256}, 2048 + 1024}};

TEST(MemoryAccount, TiedEmbeddingsAreOneMatrixOnEachRankThatHasThem) {
  model::Shape shape{4, 12, 3, 1, 7, 37, 4, 3, model::Dtype::bf16};
  shape.tied = true;
  for (const auto& [spec, groups, replicas, context, elements, updated, moved] : tied_by_hand) {
    SCOPED_TRACE(spec);
    shape.context.count = context;
    const Program program = build({.spec = parse_spec(spec),
        .groups = groups,
        .micro_batches = 4,
        .layers = 4,
        .replicas = replicas,
        .context = context,
        .tied = true,
        .costs = model::block_costs(shape)});
    const Layout layout = model::make_layout(shape, cut_of(program));
    std::vector<std::size_t> weights, gradients, states;
    for (int r = 0; const Footprint& f : memory(program, layout)) {
      std::map<char, std::size_t> found;
      for (const auto& [slot, bytes] : f.slots)
        found[letter_of(slot.cls)] += bytes;
      weights.push_back(found['e'] / 2);
      gradients.push_back(found['f'] / 4);
      const bool updates = f.optimiser.size() > program.ranks[r++].owned_shards.size();
      states.push_back(updates ? f.optimiser.back() / 12 : 0);
    }
    EXPECT_EQ(weights, elements);
    EXPECT_EQ(gradients, elements);
    EXPECT_EQ(states, updated);
    const Groups all({groups.ranks()});
    EXPECT_EQ(bytes(program, layout).inside(all, Traffic::embeddings), moved);
  }
}

/// Around the six ranks goes a number, to its sum and back to all, through a lane that sums nothing
/// else.
TEST(MemoryAccount, ClippingMovesOneNumberThatEveryRankHas) {
  Request request{parse_spec("zb1"), Groups({2, 1, 3}), 12, 6};
  const Program open = build(request);
  request.clips = true;
  const Program clipped = build(request);
  const Layout layout = model::make_layout({6, 12, 3, 1, 23, 37, 5, 3}, cut_of(open));
  const auto moved_by = [&](const Program& program) {
    return bytes(program, layout).inside(Groups({6}), Traffic::gradients);
  };
  EXPECT_EQ(moved_by(clipped), moved_by(open) + 2 * 5 * 4);
  for (std::size_t r = 0; r < 6; ++r)
    EXPECT_EQ(bytes_of(memory(clipped, layout)[r], Memory::buffers),
        bytes_of(memory(open, layout)[r], Memory::buffers) + 256 + 512 * 8 + 2 * piece_bytes);
}

/// Bytes of T = 15 tokens with H = 12, d = 4, three query heads and one of keys, F = 71 and V = 37.
constexpr std::size_t hidden = 15 * 12 * 4, qkv = 15 * 20 * 4, scores = 15 * 3 * 4, rows = 15 * 4,
                      gain = 12 * 4, product = 15 * 71 * 4, gate_and_up = 2 * product;

/// What F keeps of a block, what B leaves for W besides `deferred`, and what kernels need.
struct KeptOfBlock {
  model::Recompute recompute;
  std::vector<std::size_t> saved, deferred, scratch;
};

/// What B leaves in any case.
const std::vector<std::size_t> deferred = {
    hidden, gain, product, hidden, qkv, 15 * gain, 15 * gain};
const std::vector<KeptOfBlock> kept_of_block = {
    {model::Recompute::block,
        {hidden},
        {hidden, rows, hidden, gate_and_up},
        {hidden, scores, hidden, rows, qkv, hidden, rows, gate_and_up, product}},
    {model::Recompute::keep_attention,
        {hidden, hidden, scores},
        {rows, hidden, gate_and_up},
        {hidden, rows, qkv, hidden, rows, gate_and_up, product}},
    {model::Recompute::none,
        {hidden, hidden, scores, rows, qkv, hidden, rows, gate_and_up},
        {gain},
        {hidden, product}}};

/// Six stages of ZB-H1 with one or two blocks: all keep what F saves of six micro-batches, stage r
/// what B leaves of r + 1, and two states. The ends read tokens, the last one sums the final norm.
TEST(MemoryAccount, PipelineOfSixStagesByHand) {
  const Program program = build({parse_spec("zb1"), Groups({2, 1, 3}), 12, 9});
  model::Shape shape{9, 12, 3, 1, 71, 37, 5, 3};
  for (const auto& [recompute, saved, left, scratch] : kept_of_block) {
    shape.recompute = recompute;
    const Layout layout = model::make_layout(shape, cut_of(program));
    const std::vector<Footprint> all = memory(program, layout);
    for (int r = 0; r < 6; ++r) {
      const bool end = r % 5 == 0;
      const std::size_t shard = layout.shards[r].elements, ends = end ? layout.embeddings.part : 0,
                        of_block = 6 * sum_of(saved) + (r + 1) * (sum_of(deferred) + sum_of(left)),
                        rotation = 15 * 4 * 4;
      EXPECT_EQ(bytes_of(all[r], Memory::activations),
          layout.shards[r].layers * of_block + 2 * rounded(hidden));
      EXPECT_EQ(bytes_of(all[r], Memory::gradients), sum_of({shard * 4, ends * 4}));
      EXPECT_EQ(bytes_of(all[r], Memory::weights), sum_of({shard * 4, ends * 4}));
      EXPECT_EQ(bytes_of(all[r], Memory::optimiser), sum_of({shard * 8, ends * 8}));
      EXPECT_EQ(bytes_of(all[r], Memory::buffers),
          256 + sum_of(scratch) + sum_of({rotation, end ? rows : 0, r == 5 ? 15 * gain : 0}));
      // 15 inputs, targets and positions, where up to 15 tokens begin, and their end, in whole
      // eights; of twelve micro-batches
      EXPECT_EQ(bytes_of(all[r], Memory::tokens), end ? 12U * 4 * (3 * 15 + 16 + 1) : 0U);
    }
  }
}

/// Transfers count too: of the relay, a fetch before tick 0 and the last gather.
TEST(TickAccount, ByHand) {
  const Ticks two = ticks(build(shapes::pipeline())), far = ticks(build(shapes::relay()));
  EXPECT_EQ(std::tuple(two.total, two.busy, two.idle(1)), std::tuple(5, std::vector{3, 3}, 2));
  EXPECT_EQ(std::tuple(far.total, far.busy), std::tuple(7, std::vector{4, 4}));
  EXPECT_EQ(ticks({}).total, 0);
}
}  // namespace
}  // namespace minitaw::schedule
