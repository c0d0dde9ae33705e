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
/// Numbers of a slice of the ends: one of the embedding, one of final norm and head.
inline constexpr int per_slice = 2;
inline Run slices(int begin, int end) { return {per_slice * begin, per_slice * end}; }
inline Buffer first_ends(int count) {
  Buffer ends;
  for (int i = 0; i < per_slice * count; ++i) ends.push_back(mix(2, i));
  return ends;
}
/// Where in the ends the embedding is, or final norm and head: in split ends all of a slice.
enum class End { embedding, head };
inline std::vector<int> places(const Program& p, End end) {
  std::vector<int> result;
  const int which = end == End::embedding ? 0 : 1;
  for (int i = 0; i < per_slice * p.ends_slices; ++i)
    if ((p.ends_split ? i / per_slice : i % per_slice) == which) result.push_back(i);
  return result;
}
inline Buffer at_places(const Buffer& buffer, const std::vector<int>& places) {
  Buffer result;
  for (const int i : places) result.push_back(buffer[static_cast<std::size_t>(i)]);
  return result;
}

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
