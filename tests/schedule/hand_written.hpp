// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/ranges.h>
#include "schedule/parse.hpp"

/// Valid programs small enough to follow by hand: the ground that the validator stands on.
namespace minitaw::schedule::hand_written {
/// With single blanks.
inline std::string squeezed(std::string text) {
  const auto both = [](char a, char b) { return a == ' ' && b == ' '; };
  text.erase(std::ranges::unique(text, both).begin(), text.end());
  return text;
}

/// Two ranks that are far apart: weights and gradients go by send and recv.
inline const std::string relay = squeezed(R"(program relay
shards 2
micro_batches 2
embeddings_parts 2
groups 1+1
communicator world 0 1
rank 0 slots h1 t1 w1 g1 a2 x1 e1 f1 owned 0
   0 inputs_recv     send W0 h0 -> r1
   0 inputs_recv     recv W1 w0 <- r1
   0 compute         embed m0 x0 e0
   0 compute         F s0 m0 h0 a0 x0
   1 compute         F s1 m0 w0 a1 x0 after inputs_recv:2
   1 compute         loss m0 x0 e0 f0
   2 compute         BW s1 m0 w0 a1 x0 g0
   2 inputs_recv     send G1 g0 -> r1 after compute:5
   3 compute         BW s0 m0 h0 a0 x0 t0
   3 compute         dembed m0 x0 f0
   3 inputs_recv     recv G0 g0 <- r1
   3 inputs_recv     add G0 g0 +t0 after compute:6
   4 inputs_recv     reduce_scatter EG f0 @world after compute:7
   4 compute         update W0 h0 t0 after inputs_recv:5
   4 compute         update E0 e0 f0 after inputs_recv:6
   4 inputs_recv     all_gather E e0 @world after compute:9
   4 compute         join after inputs_recv:7
rank 1 slots h1 t1 w1 g1 a2 x1 e1 f1 owned 1
   0 inputs_recv     recv W0 w0 <- r0
   0 inputs_recv     send W1 h0 -> r0
   0 compute         embed m1 x0 e0
   0 compute         F s0 m1 w0 a0 x0 after inputs_recv:1
   1 compute         F s1 m1 h0 a1 x0
   1 compute         loss m1 x0 e0 f0
   2 compute         BW s1 m1 h0 a1 x0 t0
   2 inputs_recv     recv G1 g0 <- r0
   2 inputs_recv     add G1 g0 +t0 after compute:5
   3 compute         BW s0 m1 w0 a0 x0 g0 after inputs_recv:4
   3 compute         dembed m1 x0 f0
   3 inputs_recv     send G0 g0 -> r0 after compute:6
   4 inputs_recv     reduce_scatter EG f0 @world after compute:7
   4 compute         update W1 h0 t0 after inputs_recv:4
   4 compute         update E1 e0 f0 after inputs_recv:6
   4 inputs_recv     all_gather E e0 @world after compute:9
   4 compute         join after inputs_recv:7
)");

/// Two stages that pass activations, the backward pass split in two.
inline const std::string pipeline = squeezed(R"(program pipeline
shards 2
micro_batches 1
embeddings_parts 2
groups 1+1
embeddings_split 1
rank 0 slots h1 t1 a1 b1 x1 e1 f1 embeddings 0 owned 0
   0 compute         embed m0 x0 e0
   0 compute         F s0 m0 h0 a0 x0
   0 inputs_recv     send A1 m0 x0 -> r1 after compute:2
   1 inputs_recv     recv D1 m0 x0 <- r1
   2 compute         B s0 m0 h0 a0 x0 b0 after inputs_recv:2
   2 compute         W s0 m0 a0 b0 t0
   2 compute         dembed m0 x0 f0
   3 compute         update W0 h0 t0
   3 compute         update E0 e0 f0
   3 compute         join
rank 1 slots h1 t1 a1 b1 x1 e1 f1 embeddings 1 owned 1
   0 inputs_recv     recv A1 m0 x0 <- r0
   1 compute         F s1 m0 h0 a0 x0 after inputs_recv:1
   1 compute         loss m0 x0 e0 f0
   1 compute         B s1 m0 h0 a0 x0 b0
   1 inputs_recv     send D1 m0 x0 -> r0 after compute:3
   2 compute         W s1 m0 a0 b0 t0
   3 compute         update W1 h0 t0
   3 compute         update E1 e0 f0
   3 compute         join after inputs_recv:2
)");

inline std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find(by, begin)) != std::string::npos;
      begin = end + by.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

/// `text` with `from`, which occurs in it, replaced everywhere.
inline std::string with(const std::string& text, const std::string& from, const std::string& to) {
  const std::vector<std::string> parts = split(text, from);
  if (parts.size() == 1)
    throw std::logic_error("does not occur: " + from);
  return fmt::format("{}", fmt::join(parts, to));
}
}  // namespace minitaw::schedule::hand_written
