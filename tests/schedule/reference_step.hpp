// SPDX-License-Identifier: BSD-3-Clause
#pragma once
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
  for (int m = 0; m < p.micro_batches; ++m) {
    Number x = embed(picked(embeddings, embedding), m);
    std::vector<Number> saved;
    for (int s = 0; s < p.shards; ++s) {
      saved.push_back(x);
      x = forward(x, weights[s], s);
    }
    for (const int i : head)
      embeddings_gradient[i] += head_gradient(x, picked(embeddings, head), m, i);
    x = loss(x, picked(embeddings, head), m);
    for (int s = p.shards - 1; s >= 0; --s) {
      for (int i = 0; i < p.shard_parts; ++i)
        gradients[s][i] += weight_gradient(x, saved[s], s, i);
      x = backward(x, saved[s], weights[s], s);
    }
    for (const int i : embedding)
      embeddings_gradient[i] += embed_gradient(x, m, i);
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
