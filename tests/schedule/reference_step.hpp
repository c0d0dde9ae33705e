// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <vector>
#include "schedule/program.hpp"

/// A training step on made-up numbers, done plainly: what any program must compute.
namespace minitaw::schedule::reference {
using Number = std::uint64_t;
/// A buffer: a number, or one per part of a shard, or two per part of the embeddings, one if they
/// are tied. Gradients add, all else is mixed beyond recognition.
using Buffer = std::vector<Number>;

/// What a number is mixed from begins with what it is.
enum Made : Number {
  initial,
  embedded,
  forwarded,
  lost,
  head_gradient,
  returned,
  weight_gradient,
  embedding_gradient,
  squared,
  updated
};

/// Numbers [begin, end) of a buffer.
struct Run {
  int begin = 0, end = 0;
};

inline Buffer within(const Buffer& buffer, Run run) {
  return {buffer.begin() + run.begin, buffer.begin() + run.end};
}

inline void put(Buffer& buffer, Run run, const Buffer& content) {
  std::copy(content.begin(), content.end(), buffer.begin() + run.begin);
}

inline void mix_in(Number& a, Number b) {
  a = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  a = (a ^ (a >> 30)) * 0xBF58476D1CE4E5B9ULL;
  a = (a ^ (a >> 27)) * 0x94D049BB133111EBULL;
}

inline void mix_in(Number& a, const Buffer& buffer) {
  for (const Number b : buffer)
    mix_in(a, b);
}

Number mix(Number what, const auto&... with) {
  (mix_in(what, with), ...);
  return what;
}

// The embeddings. A part has a number of the embedding and one of final norm and head; split in
// two, either part has both of one of them. Tied, a number is of both.

inline bool is_of(const Program& p, int number, bool head) {
  return p.tied || ((p.embeddings_split ? number / 2 : number % 2) == 1) == head;
}

inline int numbers_of_part(const Program& p) {
  return p.tied ? 1 : 2;
}

inline Buffer end_of(const Program& p, const Buffer& embeddings, bool head) {
  Buffer result;
  for (int i = 0; i < std::ssize(embeddings); ++i)
    if (is_of(p, i, head))
      result.push_back(embeddings[i]);
  return result;
}

// What actions do to buffers.

inline int width(const Program& p, SlotClass cls) {
  if (of_embeddings(cls))
    return numbers_of_part(p) * p.embeddings_parts;
  return row_of(cls).data == Data::shard ? p.shard_parts : 1;
}

inline Run run_of(int width, int part, int parts) {
  return {part * (width / parts), (part + 1) * (width / parts)};
}

/// What the rank keeps of each of its shards, or of the embeddings.
inline Run kept_run(const Program& p, int r, SlotClass cls) {
  const RankProgram& rank = p.ranks[r];
  if (cls == SlotClass::owned)
    return run_of(p.shard_parts, rank.part, p.owned_parts);
  const bool all = rank.embeddings_part < 0;
  return run_of(width(p, cls), all ? 0 : rank.embeddings_part, all ? 1 : p.embeddings_parts);
}

/// What an action touches of its slot k.
inline Run touched(const Program& p, const Action& a, std::size_t k) {
  const bool parts = is_communication(a.kind) || a.kind == Kind::accumulate || a.kind == Kind::load;
  return run_of(width(p, a.slots[k].cls), parts ? a.part : 0, parts ? a.parts : 1);
}

using Buffers = std::array<Buffer, most_operands>;

/// `held`: what a local action found in its slots, `out`: where it leaves its results.
inline void compute(
    const Program& p, int r, const Action& a, const Buffers& held, const auto& out) {
  using enum Kind;
  const int m = a.micro_batch, s = a.shard;
  const auto in = [&](std::size_t k) { return held[k][0]; };
  // Of gradients: the new number is the old one plus, or nothing but, what is added.
  const auto add_to = [&](std::size_t k, int i, Number gradient) {
    out(k)[i] = (a.accumulates ? held[k][i] : 0) + gradient;
  };
  const auto add_shard = [&](std::size_t k, Number x, Number saved) {
    for (int i = 0; i < p.shard_parts; ++i)
      add_to(k, i, mix(weight_gradient, x, saved, s, i));
  };
  // What slices of a micro-batch leave to each other: of operand k.
  const auto extended = [&](std::size_t k, Number x) {
    return (out(k) = {mix(a.extends ? in(k) : 0, x)})[0];
  };
  const int n = numbers_of_part(p);
  const Run of_update =
      of_embeddings(a.payload) ? Run{n * s, n * (s + 1)} : kept_run(p, r, SlotClass::owned);
  const auto restore = [&](std::size_t k) { out(k) = held[k]; };
  switch (a.kind) {
  case embed: out(0) = {mix(embedded, m, end_of(p, held[1], false))}; break;
  case forward: {
    const Number x = p.slices > 1 ? mix(in(2), extended(3, in(2))) : in(2);
    out(1) = {in(2)};
    out(2) = {mix(forwarded, x, held[0], s)};
    break;
  }
  case loss: {
    const Buffer head = end_of(p, held[1], true);
    out(0) = {mix(lost, in(0), m, head)};
    restore(2);
    for (int i = 0; i < std::ssize(held[2]); ++i)
      if (is_of(p, i, true))
        add_to(2, i, mix(head_gradient, in(0), m, head, i));
    break;
  }
  case backward:
  case backward_input: {
    const Number x = p.slices > 1 ? mix(in(2), in(4), extended(5, in(2))) : in(2);
    out(2) = {mix(returned, x, in(1), held[0], s)};
    if (a.kind == backward)
      add_shard(3, x, in(1));
    else
      out(3) = {x};
    break;
  }
  case backward_weight: add_shard(2, in(1), in(0)); break;
  case embed_backward:
    restore(1);
    for (int i = 0; i < std::ssize(held[1]); ++i)
      if (is_of(p, i, false))
        add_to(1, i, mix(embedding_gradient, in(0), m, i));
    break;
  case square:
    out(1) = {a.accumulates ? in(1) : 0};
    for (const Number g : within(held[0], of_update))
      out(1)[0] += mix(squared, g);
    break;
  case update:
    restore(0);
    for (int i = of_update.begin; i < of_update.end; ++i)
      out(0)[i] = mix(updated, held[0][i], held[1][i], a.slots[2].valid() ? in(2) : 0);
    break;
  case zero: out(0) = Buffer(held[0].size()); break;
  case accumulate:
    for (int i = touched(p, a, 0).begin; i < touched(p, a, 0).end; ++i)
      add_to(1, i, held[0][i]);
    break;
  case load: put(out(1), touched(p, a, 1), within(held[0], touched(p, a, 0))); break;
  default: break;
  }
}

/// Weights before the step of every shard, and at last of the embeddings.
inline std::vector<Buffer> first_weights(const Program& p) {
  std::vector<Buffer> weights(p.shards, Buffer(p.shard_parts));
  weights.emplace_back(width(p, SlotClass::embeddings));
  for (std::size_t s = 0; s < weights.size(); ++s)
    for (std::size_t i = 0; i < weights[s].size(); ++i)
      weights[s][i] = mix(initial, s, i);
  return weights;
}

/// And after it, done plainly.
inline std::vector<Buffer> last_weights(const Program& p) {
  std::vector<Buffer> weights = first_weights(p), gradients;
  for (const Buffer& w : weights)
    gradients.emplace_back(w.size());
  const Buffer embedding = end_of(p, weights.back(), false), head = end_of(p, weights.back(), true);
  for (int first = 0; first < p.micro_batches; first += p.slices) {
    // Slices of a micro-batch go forward in order and come back in reverse.
    std::vector<Buffer> states(p.slices);  // in front of each shard, and of the head
    Buffer keys(p.shards), key_gradients(p.shards);
    for (int k = 0; k < p.slices; ++k) {
      Number x = mix(embedded, first + k, embedding);
      for (int s = 0; s < p.shards; ++s) {
        states[k].push_back(x);
        mix_in(keys[s], x);
        x = mix(forwarded, p.slices > 1 ? mix(x, keys[s]) : x, weights[s], s);
      }
      states[k].push_back(x);
    }
    for (int k = p.slices - 1; k >= 0; --k) {
      const Number top = states[k][p.shards];
      Number x = mix(lost, top, first + k, head);
      for (int s = p.shards - 1; s >= 0; --s) {
        mix_in(key_gradients[s], x);
        if (p.slices > 1)
          x = mix(x, keys[s], key_gradients[s]);
        for (int i = 0; i < p.shard_parts; ++i)
          gradients[s][i] += mix(weight_gradient, x, states[k][s], s, i);
        x = mix(returned, x, states[k][s], weights[s], s);
      }
      for (int i = 0; i < std::ssize(gradients.back()); ++i)
        gradients.back()[i] +=
            (is_of(p, i, true) ? mix(head_gradient, top, first + k, head, i) : 0) +
            (is_of(p, i, false) ? mix(embedding_gradient, x, first + k, i) : 0);
    }
  }
  Number squares = 0;
  for (const Buffer& gradient : gradients)
    for (const Number g : gradient)
      squares += p.clips ? mix(squared, g) : 0;
  for (std::size_t s = 0; s < weights.size(); ++s)
    for (std::size_t i = 0; i < weights[s].size(); ++i)
      weights[s][i] = mix(updated, weights[s][i], gradients[s][i], squares);
  return weights;
}
}  // namespace minitaw::schedule::reference
