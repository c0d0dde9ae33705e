#include "model/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "model/checked.hpp"

namespace minitaw::model {

namespace {

std::int64_t aligned(std::int64_t elements) { return (elements + alignment - 1) / alignment * alignment; }

/// needed[i]: the fewest runs that cover costs[i..] with no run dearer than `cap`.
std::vector<int> runs_needed(const std::vector<std::int64_t>& costs, std::int64_t cap) {
  std::vector<int> needed(costs.size() + 1, 0);
  std::size_t end = costs.size();
  std::int64_t sum = 0;
  for (std::size_t i = costs.size(); i-- > 0;) {
    sum += costs[i];
    while (sum > cap) sum -= costs[--end];
    needed[i] = 1 + needed[end];
  }
  return needed;
}

std::int64_t smallest_cap(const std::vector<std::int64_t>& costs, int runs) {
  std::int64_t low = *std::max_element(costs.begin(), costs.end());
  std::int64_t high = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (runs_needed(costs, middle).front() <= runs) high = middle;
    else low = middle + 1;
  }
  return low;
}

/// Appends tensors to a flat buffer.
class Packer {
public:
  void add(std::string name, int layer, Role role, std::int64_t rows, std::int64_t cols) {
    const std::string prefix = layer < 0 ? "" : fmt::format("layers.{}.", layer);
    const bool gain = role == Role::norm1 || role == Role::norm2 || role == Role::norm;
    tensors_.push_back({prefix + std::move(name), layer, rows, cols, offset_, !gain, role});
    offset_ += aligned(rows * cols);
  }
  void skip(std::int64_t elements) { offset_ += elements; }
  [[nodiscard]] std::int64_t elements() const { return offset_; }
  [[nodiscard]] std::vector<Tensor> take() { return std::move(tensors_); }

private:
  std::vector<Tensor> tensors_;
  std::int64_t offset_ = 0;
};

void add_block(Packer& packer, const Shape& shape, int layer) {
  const std::int64_t hidden = shape.hidden, ffn = shape.ffn[layer];
  packer.add("norm1", layer, Role::norm1, hidden, 1);
  packer.add("wqkv", layer, Role::wqkv, shape.qkv(), hidden);
  packer.add("wo", layer, Role::wo, hidden, shape.heads * shape.head_dim());
  packer.add("norm2", layer, Role::norm2, hidden, 1);
  packer.add("w13", layer, Role::w13, 2 * ffn, hidden);
  packer.add("w2", layer, Role::w2, hidden, ffn);
}

/// Size of each of `pieces` equal, aligned pieces that hold `elements` together.
std::int64_t piece_of(std::int64_t elements, int pieces) { return aligned((elements + pieces - 1) / pieces); }

Shard make_shard(const Shape& shape, int first_layer, int layers, int parts) {
  Packer packer;
  for (int layer = first_layer; layer < first_layer + layers; ++layer) add_block(packer, shape, layer);
  return {first_layer, layers, parts * piece_of(packer.elements(), parts), packer.take()};
}

Ends make_ends(const Shape& shape, const Cut& cut) {
  Packer packer;
  packer.add("embedding", -1, Role::embedding, shape.vocab, shape.hidden);
  const std::int64_t embedding = packer.elements();
  // The head is at least as large as the embedding, so both slices are as large as the second.
  if (cut.ends_split) packer.skip(aligned(shape.hidden));
  packer.add("norm", -1, Role::norm, shape.hidden, 1);
  packer.add("head", -1, Role::head, shape.vocab, shape.hidden);
  const std::int64_t slice =
      cut.ends_split ? embedding + aligned(shape.hidden) : piece_of(packer.elements(), cut.slices);
  return {cut.slices * slice, slice, packer.take()};
}

/// What shards are balanced by: passes of a step over each block, plus the head's where it lies with the
/// last.
std::vector<std::int64_t> costs_of(const Shape& shape, const Cut& cut) {
  constexpr std::int64_t forward_and_backward = 3;
  const std::int64_t passes = forward_and_backward + (shape.recompute == Recompute::none ? 0 : 1);
  std::vector<std::int64_t> costs;
  for (int layer = 0; layer < shape.layers; ++layer) costs.push_back(passes * block_cost(shape, layer));
  if (cut.ends_split) costs.back() += forward_and_backward * shape.vocab * shape.hidden;
  return costs;
}

}  // namespace

std::int64_t block_cost(const Shape& shape, int layer) {
  return block_matmul_parameters(shape, layer) + shape.seq * shape.heads * shape.head_dim();
}

std::vector<int> balanced_runs(const std::vector<std::int64_t>& costs, int runs) {
  const auto size = static_cast<int>(costs.size());
  if (runs < 1 || runs > size) throw LogicError(fmt::format("{} runs of {} blocks", runs, size));
  const std::int64_t cap = smallest_cap(costs, runs);
  const std::vector<int> needed = runs_needed(costs, cap);
  std::int64_t left = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
  std::vector<int> lengths;
  for (int begin = 0, after = runs - 1; after >= 0; --after) {
    const std::int64_t share = left / (after + 1);
    std::int64_t sum = costs[begin];
    int end = begin + 1;
    // Take a block when the rest would not fit otherwise, or when the run gets closer to its share by it.
    while (end < size && size - end > after) {
      const bool must = needed[end] > after;
      if (!must && (sum + costs[end] > cap || sum + costs[end] - share > share - sum)) break;
      sum += costs[end++];
    }
    lengths.push_back(end - begin);
    begin = end;
    left -= sum;
  }
  return lengths;
}

Layout make_layout(const Shape& shape, const Cut& cut) {
  check(shape);
  if (cut.shards < 1 || cut.slices < 1 || cut.shard_parts < 1 || (cut.ends_split && cut.slices != 2))
    throw LogicError(
        fmt::format("{} shards of {} parts, {} slices of the ends", cut.shards, cut.shard_parts, cut.slices));
  if (cut.shards > shape.layers)
    throw InputError(
        fmt::format("layers = {}: {} shards need at least {} layers", shape.layers, cut.shards, cut.shards));
  Layout layout{shape, {}, make_ends(shape, cut)};
  int first = 0;
  for (const int length : balanced_runs(costs_of(shape, cut), cut.shards)) {
    layout.shards.push_back(make_shard(shape, first, length, cut.shard_parts));
    first += length;
  }
  return layout;
}

}  // namespace minitaw::model
