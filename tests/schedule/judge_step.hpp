#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/program.hpp"

/// A training step on made-up numbers, as the judge computes it.
namespace minitaw::schedule::judged {

using Number = std::uint64_t;
/// A buffer: one number, or one per part of a shard or slice of the ends. Gradients add, everything else is
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
  for (const Number n : b) a = mix(a, n);
  return a;
}

inline Buffer first_weights(int shard, int parts) {
  Buffer weights;
  for (int i = 0; i < parts; ++i) weights.push_back(mix(mix(1, shard), i));
  return weights;
}
inline Buffer first_ends(int slices) {
  Buffer ends;
  for (int i = 0; i < slices; ++i) ends.push_back(mix(2, i));
  return ends;
}
/// Slices of the ends that the embedding, or final norm and head, lie in.
inline Run embedding_slices(const Program& p) { return {0, p.ends_split ? 1 : p.ends_slices}; }
inline Run head_slices(const Program& p) { return {p.ends_split ? 1 : 0, p.ends_slices}; }

// The arithmetic of a training step.
inline Number embed(const Buffer& embedding, int m) { return mix(mix(3, m), embedding); }
inline Number forward(Number x, const Buffer& w, int s) { return mix(mix(mix(4, x), w), s); }
inline Number loss(Number x, const Buffer& head, int m) { return mix(mix(mix(5, x), m), head); }
inline Number head_gradient(Number x, const Buffer& head, int m, int slice) {
  return mix(mix(loss(x, head, m), 6), slice);
}
inline Number backward(Number x, Number kept, const Buffer& w, int s) {
  return mix(mix(mix(mix(7, x), kept), w), s);
}
inline Number weight_gradient(Number x, Number kept, int s, int part) {
  return mix(mix(mix(mix(8, x), kept), s), part);
}
inline Number embed_gradient(Number x, int m, int slice) { return mix(mix(mix(9, x), m), slice); }
inline Number update(Number w, Number gradient) { return mix(mix(10, w), gradient); }

struct Weights {
  std::vector<Buffer> shards;
  Buffer ends;
};

/// The step, done plainly.
[[nodiscard]] Weights expected(const Program& program);

}  // namespace minitaw::schedule::judged
