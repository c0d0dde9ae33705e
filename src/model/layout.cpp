// SPDX-License-Identifier: BSD-3-Clause
#include "model/layout.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <ranges>
#include "base/error.hpp"

namespace minitaw::model {
namespace {
/// Sizes of matrices must fit the 32-bit integers of BLAS, and a token is a 32-bit integer.
constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

/// Tokens that the length of every slice is a multiple of: 2 n chunks are equal.
std::int64_t least_slice(const Shape& shape) {
  return shape.shares_sequences() ? 2 * shape.context.count : 1;
}

void check_sizes(const Shape& shape) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"layers", shape.layers},
      {"hidden", shape.hidden},
      {"heads", shape.heads},
      {"kv_heads", shape.kv_heads},
      {"ffn", shape.ffn},
      {"vocab", shape.vocab},
      {"seq", shape.seq},
      {"micro_batch", shape.micro_batch}};
  for (const auto& [key, size] : sizes)
    if (size < 1 || size > largest)
      throw InputError("{} = {}: it must be 1 to {}", key, size, largest);
  if (const auto [index, count] = shape.context; count < 1 || index < 0 || index >= count)
    throw LogicError("part {} of {} of a sequence", index, count);
  const std::int64_t least = least_slice(shape);
  if (shape.seq % least != 0)
    throw InputError("seq = {0}: context = {1} divides a sequence into {2} equal chunks; use a "
                     "multiple of {2}, or context = 1",
        shape.seq,
        shape.context.count,
        least);
  if (shape.slices < 1 || shape.seq < shape.slices * least)
    throw InputError("seq = {}: slices = {}{} need a sequence of at least {}",
        shape.seq,
        shape.slices,
        shape.shares_sequences() ? fmt::format(" with context = {}", shape.context.count) : "",
        counted(shape.slices * least, "token"));
  if (shape.key_parts < 1 || shape.kv_heads % shape.key_parts != 0)
    throw InputError(
        "context_parts = {} does not divide kv_heads = {}", shape.key_parts, shape.kv_heads);
}

void check_heads(const Shape& shape) {
  if (shape.given_head_dim == 0 && shape.hidden % shape.heads != 0)
    throw InputError("heads = {} does not divide hidden = {}; give head_dim too, or a divisor",
        shape.heads,
        shape.hidden);
  if (shape.heads % shape.kv_heads != 0)
    throw InputError("kv_heads = {} does not divide heads = {}", shape.kv_heads, shape.heads);
  if (shape.head_dim() % 2 != 0)
    throw InputError(
        "head_dim = {}, of hidden = {} and heads = {}: it must be even, because rotary "
        "embedding turns pairs",
        shape.head_dim(),
        shape.hidden,
        shape.heads);
}

/// Refuses a shape whose buffers a 64-bit size cannot count, so that no later code needs to check.
void check_products(const Shape& shape) {
  // in floating point, where nothing overflows
  const double layers = shape.layers, hidden = shape.hidden, vocab = shape.vocab, ffn = shape.ffn,
               tokens = 1.0 * shape.seq * shape.micro_batch,
               width = 1.0 * shape.heads * shape.head_dim(),
               qkv = width + 2.0 * shape.kv_heads * shape.head_dim();
  const auto require = [](double size, std::int64_t limit, const std::string& what) {
    if (size > limit)
      throw InputError("{} is larger than {}; make one of them smaller", what, limit);
  };
  require(
      tokens, largest, fmt::format("seq * micro_batch = {} * {}", shape.seq, shape.micro_batch));
  require(qkv,
      largest,
      fmt::format("(heads + 2 kv_heads) * head_dim = ({} + 2 * {}) * {}",
          shape.heads,
          shape.kv_heads,
          shape.head_dim()));
  require(2 * ffn, largest, fmt::format("2 * ffn = 2 * {}", shape.ffn));
  // 16 bytes an element and 16 buffers of each width cover the arena of a rank; `layers` of them,
  // any depth.
  require(tokens * (hidden + qkv + ffn) * 256 * layers,
      INT64_MAX,
      fmt::format("the activations of {} tokens, hidden = {}, ffn = {}, layers = {}",
          shape.tokens(),
          shape.hidden,
          shape.ffn,
          shape.layers));
  require((layers * hidden * (width + qkv + 3 * ffn + 2) + (vocab + 1) * hidden * 2) * 64,
      INT64_MAX,
      fmt::format("the weights of layers = {}, hidden = {}, ffn = {}, vocab = {}",
          shape.layers,
          shape.hidden,
          shape.ffn,
          shape.vocab));
}

std::int64_t aligned(std::int64_t elements) {
  return (elements + alignment - 1) / alignment * alignment;
}

/// Puts a tensor behind those that are there; without a layer, it is one of the embeddings.
void append(Flat& flat, int layer, Role role, std::int64_t rows, std::int64_t cols) {
  constexpr std::array names = {
      "norm1", "wqkv", "wo", "norm2", "w13", "w2", "embedding", "norm", "head"};
  const std::string name = names[static_cast<std::size_t>(role)];
  flat.tensors.push_back({layer < 0 ? name : fmt::format("layers.{}.{}", layer, name),
      layer,
      rows,
      cols,
      flat.elements,
      role});
  flat.elements += aligned(rows * cols);
}

/// Size of each of `pieces` equal, aligned pieces that hold `elements` together.
std::int64_t piece_of(std::int64_t elements, int pieces) {
  return aligned((elements + pieces - 1) / pieces);
}

Shard make_shard(const Shape& shape, int first_layer, int layers, int parts) {
  Shard shard{{}, layers};
  const std::int64_t hidden = shape.hidden, ffn = shape.ffn;
  for (int layer = first_layer; layer < first_layer + layers; ++layer) {
    append(shard, layer, Role::norm1, hidden, 1);
    append(shard, layer, Role::wqkv, shape.qkv(), hidden);
    append(shard, layer, Role::wo, hidden, shape.attention_width());
    append(shard, layer, Role::norm2, hidden, 1);
    append(shard, layer, Role::w13, 2 * ffn, hidden);
    append(shard, layer, Role::w2, hidden, ffn);
  }
  shard.elements = parts * piece_of(shard.elements, parts);
  return shard;
}

Embeddings make_embeddings(const Shape& shape, const Cut& cut) {
  Embeddings result;
  append(result, -1, Role::embedding, shape.vocab, shape.hidden);
  const std::int64_t embedding = result.elements, norm = aligned(shape.hidden);
  // The head is at least as large as the embedding, so both parts are as large as the second.
  if (cut.embeddings_split)
    result.elements += norm;
  append(result, -1, Role::norm, shape.hidden, 1);
  if (!shape.tied)
    append(result, -1, Role::head, shape.vocab, shape.hidden);
  result.part =
      cut.embeddings_split ? embedding + norm : piece_of(result.elements, cut.embeddings_parts);
  result.elements = cut.embeddings_parts * result.part;
  return result;
}
}  // namespace

std::size_t bytes_of(Dtype dtype) {
  return dtype == Dtype::fp32 ? 4 : 2;
}

std::string name_of(Dtype dtype) {
  return dtype == Dtype::fp32 ? "fp32" : "bf16";
}

std::string name_of(Recompute recompute) {
  return std::array{"block", "keep-attention", "none"}[static_cast<std::size_t>(recompute)];
}

void check(const Shape& shape) {
  check_sizes(shape);
  check_heads(shape);
  check_products(shape);
}

std::vector<SequenceRun> runs_of(const Shape& shape) {
  const std::int64_t chunk = shape.chunk(), first = shape.span.begin;
  if (!shape.shares_sequences())
    return {{0, chunk, first}};
  const auto [index, count] = shape.context;
  return {
      {0, chunk, first + index * chunk}, {chunk, chunk, first + (2 * count - 1 - index) * chunk}};
}

namespace {
/// Tokens that the length of a slice should be a multiple of.
std::int64_t granule_of(const Shape& shape) {
  const std::int64_t least = least_slice(shape);
  std::int64_t granule = least;
  // The shortest slice may be half as long as the mean; a border may move by a quarter of that.
  while (granule < 128 * least && 16 * granule * shape.slices <= shape.seq)
    granule *= 2;
  return granule;
}

/// The tokens of a prefix that has this share of a block's FLOPs.
double prefix_with(const Shape& shape, double share) {
  const double tokens = shape.seq;
  const double of_token = block_matmul_parameters(shape);
  const double of_pair = shape.attention_width();
  const double all = share * (of_token * tokens + of_pair * tokens * tokens);
  return 2 * all / (of_token + std::sqrt(of_token * of_token + 4 * of_pair * all));
}
}  // namespace

std::vector<Shape> slices_of(const Shape& shape) {
  const std::int64_t granule = granule_of(shape), least = least_slice(shape);
  std::vector<Shape> slices;
  for (std::int64_t begin = 0, i = 1; i <= shape.slices; ++i) {
    const double share = 1.0 * i / shape.slices;
    const double ideal = shape.even_slices ? share * shape.seq : prefix_with(shape, share);
    std::int64_t end = std::llround(ideal / granule) * granule;
    // Every slice has something, whatever the rounding says.
    end = std::clamp(end, begin + least, shape.seq - (shape.slices - i) * least);
    slices.push_back(shape);
    slices.back().span = {begin, (i == shape.slices ? shape.seq : end) - begin};
    begin = end;
  }
  return slices;
}

Shape largest_slice(const Shape& shape) {
  return shape.has_slices() ? std::ranges::max(slices_of(shape), {}, &Shape::tokens) : shape;
}

std::int64_t block_matmul_parameters(const Shape& shape) {
  return shape.hidden * (shape.qkv() + shape.attention_width() + 3 * shape.ffn);
}

double flops_per_token(const Shape& shape) {
  const std::int64_t blocks = shape.layers * block_matmul_parameters(shape);
  const double weights = shape.vocab * shape.hidden + blocks;
  return 6 * weights + 6.0 * shape.layers * shape.seq * shape.attention_width();
}

std::int64_t parameters(const Shape& shape) {
  const std::int64_t block = block_matmul_parameters(shape) + 2 * shape.hidden;
  const std::int64_t matrices = shape.tied ? 1 : 2;
  return shape.layers * block + (matrices * shape.vocab + 1) * shape.hidden;
}

std::vector<const Flat*> Layout::parts() const {
  auto all = list_of(shards, [](const Shard& shard) -> const Flat* { return &shard; });
  all.push_back(&embeddings);
  return all;
}

BlockCosts block_costs(const Shape& shape) {
  // Forward costs 1, backward 2, recomputation 1.
  const std::int64_t passes = shape.recompute == Recompute::none ? 3 : 4;
  const std::int64_t attention = shape.seq * shape.attention_width();  // causal
  return {passes * (block_matmul_parameters(shape) + attention), 3 * shape.vocab * shape.hidden};
}

std::vector<int> shard_lengths(int layers, const BlockCosts& costs, const Cut& cut) {
  const std::int64_t block = costs.block, head = cut.head_counts ? costs.head : 0;
  if (block < 1 || cut.shards < 1 || cut.shards > layers)
    throw LogicError("{} runs of {} blocks that cost {}", cut.shards, layers, block);
  // Blocks of the last so many shards, if none of them costs more than `cap`.
  const auto room = [&](std::int64_t cap, std::int64_t shards) {
    return (cap - head) / block + (shards - 1) * (cap / block);
  };
  std::int64_t cost = layers * block + head, blocks = layers;  // of what is left
  const std::int64_t cap = *std::ranges::partition_point(std::views::iota(block + head, cost + 1),
      [&](std::int64_t tried) { return room(tried, cut.shards) < layers; });
  std::vector<int> lengths;
  for (int after = cut.shards - 1; after > 0; --after) {
    // As near to its share of the cost as it can be; of two as near, the longer.
    const std::int64_t share = cost / (after + 1), nearest = (2 * share / block + 1) / 2,
                       least = std::max<std::int64_t>(1, blocks - room(cap, after)),
                       most = std::min(cap / block, blocks - after),
                       length = std::clamp(nearest, least, most);
    lengths.push_back(length);
    blocks -= length;
    cost -= length * block;
  }
  lengths.push_back(blocks);
  return lengths;
}

Layout make_layout(const Shape& shape, const Cut& cut) {
  check(shape);
  if (cut.shards < 1 || cut.embeddings_parts < 1 || cut.shard_parts < 1 ||
      (cut.embeddings_split && (cut.embeddings_parts != 2 || shape.tied)))
    throw LogicError("{} shards of {} parts, {} parts of the embeddings",
        cut.shards,
        cut.shard_parts,
        cut.embeddings_parts);
  if (cut.shards > shape.layers)
    throw InputError("layers = {0}: {1} shards need at least {1} layers", shape.layers, cut.shards);
  Layout layout{shape, {}, make_embeddings(shape, cut)};
  if (shape.has_slices())
    layout.slices = slices_of(shape);
  int first = 0;
  for (const int length : shard_lengths(shape.layers, block_costs(shape), cut)) {
    layout.shards.push_back(make_shard(shape, first, length, cut.shard_parts));
    first += length;
  }
  return layout;
}
}  // namespace minitaw::model
