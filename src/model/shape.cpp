#include "model/shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "model/checked.hpp"

namespace minitaw::model {

namespace {

/// Sizes of matrices must fit the 32-bit integers of BLAS, and a token is a 32-bit integer.
constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

void check_size(const char* key, std::int64_t value) {
  if (value < 1) throw InputError(fmt::format("{} = {}: it must be at least 1", key, value));
  if (value > largest) throw InputError(fmt::format("{} = {}: it must be at most {}", key, value, largest));
}

void check_sizes(const Shape& shape) {
  check_size("layers", shape.layers);
  check_size("hidden", shape.hidden);
  check_size("heads", shape.heads);
  check_size("kv_heads", shape.kv_heads);
  check_size("vocab", shape.vocab);
  check_size("seq", shape.seq);
  check_size("micro_batch", shape.micro_batch);
  if (shape.ffn.size() != static_cast<std::size_t>(shape.layers))
    throw InputError(fmt::format("ffn_per_layer has {} entries; layers = {} needs one for each block",
                                 shape.ffn.size(), shape.layers));
  for (const std::int64_t ffn : shape.ffn) check_size("ffn", ffn);
}

void check_heads(const Shape& shape) {
  if (shape.hidden % shape.heads != 0)
    throw InputError(fmt::format("heads = {} does not divide hidden = {}", shape.heads, shape.hidden));
  if (shape.heads % shape.kv_heads != 0)
    throw InputError(fmt::format("kv_heads = {} does not divide heads = {}", shape.kv_heads, shape.heads));
  if (shape.head_dim() % 2 != 0)
    throw InputError(fmt::format("hidden / heads = {} / {} = {}: the head dimension must be even, because "
                                 "rotary embedding turns pairs",
                                 shape.hidden, shape.heads, shape.head_dim()));
}

/// Refuses a shape whose buffers no 64-bit size could count, so that nobody downstream needs to check again.
void check_products(const Shape& shape) {
  const std::int64_t ffn = *std::max_element(shape.ffn.begin(), shape.ffn.end());
  const auto text = [](const char* what, auto... values) {
    return fmt::format(fmt::runtime(what), values...);
  };
  const std::int64_t tokens =
      checked_product(text("seq * micro_batch = {} * {}", shape.seq, shape.micro_batch),
                      {shape.seq, shape.micro_batch}, largest);
  const std::int64_t qkv = checked_product(
      text("(heads + 2 kv_heads) * head_dim = ({} + 2 * {}) * {}", shape.heads, shape.kv_heads,
           shape.head_dim()),
      {std::int64_t{shape.heads} + 2 * std::int64_t{shape.kv_heads}, shape.head_dim()}, largest);
  checked_product(text("2 * ffn = 2 * {}", ffn), {2, ffn}, largest);
  // 16 bytes an element and 16 buffers of each width cover every arena of a rank; `layers` of them, every
  // depth.
  const std::string activations = text("the activations of {} tokens, hidden = {}, ffn = {}, layers = {}",
                                       tokens, shape.hidden, ffn, shape.layers);
  checked_product(activations, {tokens, shape.hidden + qkv + ffn, 256, shape.layers});
  const std::string weights = text("the weights of layers = {}, hidden = {}, ffn = {}, vocab = {}",
                                   shape.layers, shape.hidden, ffn, shape.vocab);
  const std::int64_t blocks =
      checked_product(weights, {shape.layers, shape.hidden, shape.hidden + qkv + 3 * ffn + 2});
  const std::int64_t ends = checked_product(weights, {shape.vocab + 1, shape.hidden, 2});
  checked_product(weights, {checked_sum(weights, {blocks, ends}), 64});
  checked_product(
      text("the attention of layers = {}, seq = {}, hidden = {}", shape.layers, shape.seq, shape.hidden),
      {shape.layers, shape.seq, shape.hidden, 4});
}

}  // namespace

std::size_t bytes_of(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

std::string name_of(Dtype dtype) { return dtype == Dtype::fp32 ? "fp32" : "bf16"; }

std::string name_of(Recompute recompute) {
  switch (recompute) {
  case Recompute::block:
    return "block";
  case Recompute::keep_attention:
    return "keep-attention";
  case Recompute::none:
    return "none";
  }
  throw LogicError("recompute policy without a name");
}

void check(const Shape& shape) {
  check_sizes(shape);
  check_heads(shape);
  check_products(shape);
}

std::int64_t block_matmul_parameters(const Shape& shape, int layer) {
  return shape.hidden * (shape.qkv() + shape.hidden + 3 * shape.ffn[layer]);
}

Flops flops_per_token(const Shape& shape) {
  Flops flops;
  flops.matmul = static_cast<double>(shape.vocab) * static_cast<double>(shape.hidden);
  for (int layer = 0; layer < shape.layers; ++layer)
    flops.matmul += static_cast<double>(block_matmul_parameters(shape, layer));
  flops.matmul *= 6;
  const double width = static_cast<double>(shape.heads) * static_cast<double>(shape.head_dim());
  flops.attention_causal = 6.0 * shape.layers * static_cast<double>(shape.seq) * width;
  flops.attention_full = 2 * flops.attention_causal;
  return flops;
}

std::int64_t parameters(const Shape& shape) {
  std::int64_t sum = (2 * shape.vocab + 1) * shape.hidden;
  for (int layer = 0; layer < shape.layers; ++layer)
    sum += block_matmul_parameters(shape, layer) + 2 * shape.hidden;
  return sum;
}

}  // namespace minitaw::model
