#include "shapes.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "deck/deck.hpp"

namespace minitaw::bench {

namespace {

Shape default_shape(model::Dtype dtype) {
  return {.layers = 1,
          .hidden = 512,
          .heads = 8,
          .kv_heads = 8,
          .ffn = {1376},
          .vocab = 4096,
          .seq = 512,
          .micro_batch = 1,
          .dtype = dtype};
}

/// Blocks may differ in width, ranks in the number of sequences.
void add_shapes(std::vector<Shape>& shapes, const deck::Case& c) {
  std::vector<std::int64_t> batches = c.micro_batch_per_rank;
  if (batches.empty()) batches = {c.shape.micro_batch};
  for (const std::int64_t ffn : c.shape.ffn)
    for (const std::int64_t batch : batches) {
      Shape shape = c.shape;
      shape.layers = 1;
      shape.ffn = {ffn};
      shape.micro_batch = batch;
      shapes.push_back(shape);
    }
}

std::vector<Shape> shapes_of_deck(const Options& options) {
  const deck::Job job{.ranks = 1, .node_sizes = {}, .planning = true};
  std::vector<Shape> shapes;
  for (const deck::Case& c : deck::read_deck(options.deck, options.overrides, job).cases)
    add_shapes(shapes, c);
  return shapes;
}

void change(Shape& shape, const Options& options) {
  if (options.tokens) shape.seq = *options.tokens, shape.micro_batch = 1;
  if (options.hidden) shape.hidden = *options.hidden;
  if (options.ffn) shape.ffn = {*options.ffn};
  if (options.vocab) shape.vocab = *options.vocab;
  if (options.heads) shape.heads = shape.kv_heads = static_cast<int>(*options.heads);
  if (options.kv_heads) shape.kv_heads = static_cast<int>(*options.kv_heads);
  if (options.dtype) shape.dtype = *options.dtype;
}

auto key(const Shape& s) {
  return std::make_tuple(s.dtype, s.hidden, s.heads, s.kv_heads, s.ffn, s.vocab, s.seq, s.micro_batch);
}

}  // namespace

std::vector<Shape> shapes_of(const Options& options) {
  std::vector<Shape> shapes =
      options.deck.empty() ? std::vector{default_shape(model::Dtype::fp32), default_shape(model::Dtype::bf16)}
                           : shapes_of_deck(options);
  std::set<decltype(key(shapes[0]))> seen;
  std::vector<Shape> distinct;
  for (Shape& shape : shapes) {
    change(shape, options);
    model::check(shape);
    if (seen.insert(key(shape)).second) distinct.push_back(shape);
  }
  return distinct;
}

}  // namespace minitaw::bench
