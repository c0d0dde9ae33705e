// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include "base/range.hpp"

namespace minitaw::model {
/// `backward` does both halves at once.
enum class Direction : std::uint8_t { forward, backward, backward_input, backward_weight };

/// A part of a pass through one block, in order. Between segments, ranks that share sequences
/// exchange keys and values or their gradients. `all`: a pass without such an exchange.
enum class Segment : std::uint8_t {
  all,
  keys,     ///< forward: projection to queries, keys and values; backward: the same, or a copy
  extend,   ///< forward, of slices: gathered keys and values join those of earlier slices
  attend,   ///< attention and what follows it; backward: towards the input, down to attention
  share,    ///< backward, of slices: takes out gradients of keys that no other slice adds to
  weights,  ///< backward: gradients of all matrices but that of queries, keys and values
  finish,   ///< backward: the projection's gradient, towards input and weights
};

constexpr bool includes(Segment run, Segment segment) {
  return run == segment || run == Segment::all;
}

/// A pass of one micro-batch through the blocks of a shard, or a segment of it.
struct ShardPass {
  Direction direction = Direction::forward;
  int shard = 0;
  int slice = 0;  ///< of the micro-batch
  Segment segment = Segment::all;
  int block = 0;  ///< of the shard; unused if `segment` is all
  Part heads{};   ///< extend and forward attend: the part of Shape::key_parts; the last one goes on

  bool towards_input() const { return direction != Direction::backward_weight; }

  bool towards_weights() const {
    return direction == Direction::backward || direction == Direction::backward_weight;
  }

  bool is_half() const {
    return direction == Direction::backward_input || direction == Direction::backward_weight;
  }

  /// Returns whether the pass handles one part of the heads.
  bool is_of_heads() const {
    return direction == Direction::forward &&
           (segment == Segment::extend || segment == Segment::attend);
  }

  bool uses_hidden() const {
    return towards_input() && segment != Segment::extend && segment != Segment::share &&
           (direction == Direction::forward || segment != Segment::keys);
  }

  bool gives_weight_gradients() const {
    return towards_weights() &&
           (includes(segment, Segment::weights) || includes(segment, Segment::finish));
  }
};
}  // namespace minitaw::model
