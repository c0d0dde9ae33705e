// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include "base/range.hpp"

namespace minitaw::model {
/// `backward` is both halves in one.
enum class Direction : std::uint8_t { forward, backward, backward_input, backward_weight };

/// A part of a pass through one block, in order. Ranks that share sequences exchange keys and
/// values, or their gradients, between segments. Without such an exchange a pass is one run of all.
enum class Segment : std::uint8_t {
  all,
  keys,     ///< forward: projection to queries, keys and values; backward: the same again
  extend,   ///< forward, of slices: gathered keys and values join those of earlier slices
  attend,   ///< attention and what follows it; backward: towards the input, down to attention
  share,    ///< backward, of slices: takes out gradients of keys that no slice adds to any more
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
  int slice = 0;  ///< of the micro-batch's sequences, where they come in slices
  Segment segment = Segment::all;
  int block = 0;  ///< of the shard: the only one, unless `segment` is all
  Part heads{};   ///< extend and forward attend: the part of Shape::key_parts; the last one goes on

  bool towards_input() const { return direction != Direction::backward_weight; }

  bool towards_weights() const {
    return direction == Direction::backward || direction == Direction::backward_weight;
  }

  /// One half of a backward pass.
  bool is_half() const {
    return direction == Direction::backward_input || direction == Direction::backward_weight;
  }

  /// Extends or attends, of some heads.
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
