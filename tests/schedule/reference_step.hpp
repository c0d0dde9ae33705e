// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <numeric>
#include <vector>
#include "schedule/program.hpp"

/// A training step on made-up numbers, done plainly: what any program must compute.
namespace minitaw::schedule::reference {
using Number = std::uint64_t;
/// A buffer: a number, or one per part of a shard or of the embeddings. Gradients add, all else is
/// mixed beyond recognition.
using Buffer = std::vector<Number>;

/// Numbers [begin, end) of a buffer.
struct Run {
  int begin = 0, end = 0;

  [[nodiscard]] int size() const { return end - begin; }
};

inline Buffer within(const Buffer& buffer, Run run) {
  return {buffer.begin() + run.begin, buffer.begin() + run.end};
}

inline void put(Buffer& buffer, Run run, const Buffer& content) {
  std::copy(content.begin(), content.end(), buffer.begin() + run.begin);
}

inline Number mix(Number a, Number b) {
  Number z = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

inline Number mix(Number a, const Buffer& b) {
  for (const Number n : b)
    a = mix(a, n);
  return a;
}

inline Buffer first_weights(int shard, int parts) {
  Buffer weights;
  for (int i = 0; i < parts; ++i)
    weights.push_back(mix(mix(1, shard), i));
  return weights;
}

/// Numbers of a part of the embeddings: one of the embedding, one of final norm and head.
constexpr int per_part = 2;

inline Run parts_run(int begin, int end) {
  return {per_part * begin, per_part * end};
}

inline Buffer first_embeddings(int count) {
  Buffer embeddings;
  for (int i = 0; i < per_part * count; ++i)
    embeddings.push_back(mix(2, i));
  return embeddings;
}

/// Where in the embeddings the embedding is, or final norm and head: in split embeddings all of a
/// part.
enum class End { embedding, head };

inline std::vector<int> positions(const Program& p, End end) {
  std::vector<int> result;
  const int which = end == End::embedding ? 0 : 1;
  for (int i = 0; i < per_part * p.embeddings_parts; ++i)
    if ((p.embeddings_split ? i / per_part : i % per_part) == which)
      result.push_back(i);
  return result;
}

inline Buffer picked(const Buffer& buffer, const std::vector<int>& positions) {
  Buffer result;
  for (const int i : positions)
    result.push_back(buffer[static_cast<std::size_t>(i)]);
  return result;
}

// The arithmetic of a training step.
inline Number embed(const Buffer& embedding, int m) {
  return mix(mix(3, m), embedding);
}

inline Number forward(Number x, const Buffer& w, int s) {
  return mix(mix(mix(4, x), w), s);
}

inline Number loss(Number x, const Buffer& head, int m) {
  return mix(mix(mix(5, x), m), head);
}

inline Number head_gradient(Number x, const Buffer& head, int m, int part) {
  return mix(mix(loss(x, head, m), 6), part);
}

inline Number backward(Number x, Number saved, const Buffer& w, int s) {
  return mix(mix(mix(mix(7, x), saved), w), s);
}

inline Number weight_gradient(Number x, Number saved, int s, int part) {
  return mix(mix(mix(mix(8, x), saved), s), part);
}

inline Number embed_gradient(Number x, int m, int part) {
  return mix(mix(mix(9, x), m), part);
}

inline Number square(Number gradient) {
  return mix(11, gradient);
}

/// `squares`: of all gradients, if they are clipped.
inline Number update(Number w, Number gradient, Number squares) {
  return mix(mix(mix(10, w), gradient), squares);
}

// What actions do to buffers.

inline int width(const Program& p, SlotClass cls) {
  if (of_embeddings(cls))
    return per_part * p.embeddings_parts;
  return row_of(cls).data == Data::shard ? p.shard_parts : 1;
}

/// What the rank keeps of each of its shards, and of the embeddings.
inline Run owned_run(const Program& p, int r) {
  const int each = p.shard_parts / p.owned_parts;
  return {p.ranks[r].part * each, (p.ranks[r].part + 1) * each};
}

inline Run embeddings_run(const Program& p, int r) {
  const int part = p.ranks[r].embeddings_part;
  return part < 0 ? parts_run(0, p.embeddings_parts) : parts_run(part, part + 1);
}

/// What an action touches of its slot k.
inline Run touched(const Program& p, const Action& a, std::size_t k) {
  const int all = width(p, a.slots[k].cls);
  if (!is_communication(a.kind) && a.kind != Kind::accumulate && a.kind != Kind::load)
    return {0, all};
  return {a.part * (all / a.parts), (a.part + 1) * (all / a.parts)};
}

using Buffers = std::array<Buffer, most_operands>;

/// `held`: what a local action found in its slots, `out`: where it leaves its results.
inline void compute(
    const Program& p, int r, const Action& a, const Buffers& held, const auto& out) {
  const auto in = [&](std::size_t k) { return held[k][0]; };
  // Gradients: the new content is the old one plus, or nothing but, what is added.
  const auto add = [&](std::size_t k, const std::vector<int>& numbers, const auto& gradient) {
    out(k) = held[k];
    for (const int i : numbers)
      out(k)[i] = (a.accumulates ? held[k][i] : 0) + gradient(i);
  };
  const auto add_shard = [&](std::size_t k, Number x, Number saved) {
    std::vector<int> all(p.shard_parts);
    std::iota(all.begin(), all.end(), 0);
    add(k, all, [&](int part) { return weight_gradient(x, saved, a.shard, part); });
  };
  // What slices of a micro-batch leave to each other: of operand k.
  const auto extended = [&](std::size_t k, Number x) {
    return (out(k) = {mix(a.extends ? in(k) : 0, x)})[0];
  };
  const Run updated = of_embeddings(a.payload) ? parts_run(a.shard, a.shard + 1) : owned_run(p, r);
  const int m = a.micro_batch;
  switch (a.kind) {
  case Kind::embed: out(0) = {embed(picked(held[1], positions(p, End::embedding)), m)}; break;
  case Kind::forward: {
    const Number x = p.slices > 1 ? mix(in(2), extended(3, in(2))) : in(2);
    out(1) = {in(2)};
    out(2) = {forward(x, held[0], a.shard)};
    break;
  }
  case Kind::loss: {
    const Buffer head = picked(held[1], positions(p, End::head));
    out(0) = {loss(in(0), head, m)};
    add(2, positions(p, End::head), [&](int part) { return head_gradient(in(0), head, m, part); });
    break;
  }
  case Kind::backward:
  case Kind::backward_input: {
    const Number x = p.slices > 1 ? mix(mix(in(2), in(4)), extended(5, in(2))) : in(2);
    out(2) = {backward(x, in(1), held[0], a.shard)};
    if (a.kind == Kind::backward)
      add_shard(3, x, in(1));
    else
      out(3) = {x};
    break;
  }
  case Kind::backward_weight: add_shard(2, in(1), in(0)); break;
  case Kind::embed_backward:
    add(1, positions(p, End::embedding), [&](int part) { return embed_gradient(in(0), m, part); });
    break;
  case Kind::square: {
    Number sum = a.accumulates ? in(1) : 0;
    for (int i = updated.begin; i < updated.end; ++i)
      sum += square(held[0][i]);
    out(1) = {sum};
    break;
  }
  case Kind::update:
    out(0) = held[0];
    for (int i = updated.begin; i < updated.end; ++i)
      out(0)[i] = update(held[0][i], held[1][i], a.slots[2].valid() ? in(2) : 0);
    break;
  case Kind::zero: out(0) = Buffer(held[0].size()); break;
  case Kind::accumulate:
    for (int i = touched(p, a, 0).begin; i < touched(p, a, 0).end; ++i)
      out(1)[i] = held[0][i] + (a.accumulates ? held[1][i] : 0);
    break;
  case Kind::load: put(out(1), touched(p, a, 1), within(held[0], touched(p, a, 0))); break;
  default: break;
  }
}

struct Weights {
  std::vector<Buffer> shards;
  Buffer embeddings;
};

/// The step, done plainly.
inline Weights expected(const Program& p) {
  const std::vector<int> embedding = positions(p, End::embedding), head = positions(p, End::head);
  std::vector<Buffer> weights, gradients(p.shards, Buffer(p.shard_parts));
  for (int s = 0; s < p.shards; ++s)
    weights.push_back(first_weights(s, p.shard_parts));
  Buffer embeddings = first_embeddings(p.embeddings_parts),
         embeddings_gradient(per_part * p.embeddings_parts);
  for (int first = 0; first < p.micro_batches; first += p.slices) {
    // Slices of a micro-batch go forward in order and come back in reverse.
    std::vector<std::vector<Number>> saved(p.slices);
    std::vector<Number> keys(p.shards), key_gradients(p.shards), states(p.slices);
    const auto leave = [&](std::vector<Number>& to, int s, Number x) {
      return to[s] = mix(to[s], x);
    };
    for (int k = 0; k < p.slices; ++k) {
      Number x = embed(picked(embeddings, embedding), first + k);
      for (int s = 0; s < p.shards; ++s) {
        saved[k].push_back(x);
        x = forward(p.slices > 1 ? mix(x, leave(keys, s, x)) : x, weights[s], s);
      }
      for (const int i : head)
        embeddings_gradient[i] += head_gradient(x, picked(embeddings, head), first + k, i);
      states[k] = loss(x, picked(embeddings, head), first + k);
    }
    for (int k = p.slices - 1; k >= 0; --k) {
      Number x = states[k];
      for (int s = p.shards - 1; s >= 0; --s) {
        if (p.slices > 1)
          x = mix(mix(x, keys[s]), leave(key_gradients, s, x));
        for (int i = 0; i < p.shard_parts; ++i)
          gradients[s][i] += weight_gradient(x, saved[k][s], s, i);
        x = backward(x, saved[k][s], weights[s], s);
      }
      for (const int i : embedding)
        embeddings_gradient[i] += embed_gradient(x, first + k, i);
    }
  }
  Number squares = 0;
  for (const Buffer& gradient : gradients)
    for (const Number g : gradient)
      squares += p.clips ? square(g) : 0;
  for (const Number g : embeddings_gradient)
    squares += p.clips ? square(g) : 0;
  for (int s = 0; s < p.shards; ++s)
    for (int i = 0; i < p.shard_parts; ++i)
      weights[s][i] = update(weights[s][i], gradients[s][i], squares);
  for (std::size_t i = 0; i < embeddings.size(); ++i)
    embeddings[i] = update(embeddings[i], embeddings_gradient[i], squares);
  return {weights, embeddings};
}
}  // namespace minitaw::schedule::reference
