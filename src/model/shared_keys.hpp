// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <vector>
#include "model/buffer.hpp"

namespace minitaw::model {
kernels::AttentionSizes attention_sizes(const Shape& shape);
/// The calls of attention that a rank makes for a block: one; or of sequences that ranks share, for
/// part `key_part` of Shape::key_parts of the heads, one for each run of the rank.
std::vector<kernels::AttentionPart> attention_parts(const Shape& shape, int key_part = 0);

/// Keys and values, and their gradients in Shape::key_gradient_dtype().
struct KeyBuffers {
  Buffer key_values, gradient;
};

/// Keys and values of a block outside of its own projection, by parts of the heads, and their
/// gradients.
template <class E>
class SharedKeys {
public:
  /// `of_ranks`, if ranks share sequences: those of a sequence or slice [parts, 2 n, B, chunk,
  /// 2 h_kv d / parts], which ranks gather and add up. `of_slices`, if there are slices: those of
  /// whole sequences [parts, B, S, 2 h_kv d / parts].
  SharedKeys(const ExecutionSpace& exec,
      const Shape& shape,
      const KeyBuffers& of_ranks,
      const KeyBuffers& of_slices)
      : exec_(exec),
        shape_(shape),
        of_ranks_(of_ranks),
        of_slices_(of_slices) {}

  /// Puts this rank's part of the projection [T, (h + 2 h_kv) d] to where those of all will be.
  void put(Matrix<E> qkv) const {
    for (int p = 0; p < parts(); ++p)
      for (const kernels::AttentionPart& part : exchanged_parts(p))
        kernels::move_key_values<E, E>(exec_,
            part,
            part.run,
            exchanged<E>(&KeyBuffers::key_values, p),
            part.rows(),
            part.template in<const E>(qkv.data()),
            part.rows_in_qkv());
  }

  /// Takes this rank's part of gradients that have been summed over ranks and slices.
  void take_gradients(Matrix<E> qkv_gradient) const {
    with_gradient_type([&]<class G>(G) {
      for (int p = 0; p < parts(); ++p)
        for (const kernels::AttentionPart& part : exchanged_parts(p))
          kernels::move_key_values<E, G>(exec_,
              part,
              part.run,
              part.in(qkv_gradient.data()),
              part.rows_in_qkv(),
              exchanged<const G>(&KeyBuffers::gradient, p),
              part.rows());
    });
  }

  /// Puts gathered keys and values of a slice, of a part of the heads, behind those of earlier
  /// slices.
  void extend(int key_part) const { move_slice<E>(&KeyBuffers::key_values, key_part, true); }

  /// Takes out the gradients of a slice's keys and values, to be summed over ranks.
  void share_gradients() const {
    with_gradient_type([&]<class G>(G) {
      for (int p = 0; p < parts(); ++p)
        move_slice<G>(&KeyBuffers::gradient, p, false);
    });
  }

  /// Keys and values that the rank's queries attend to; nothing if they are in its own projection.
  kernels::KeyValues<const E> seen(int key_part) const {
    return parts() > 0 ? in_whole<const E>(&KeyBuffers::key_values, key_part)
                       : kernels::KeyValues<const E>();
  }

  /// Where attention's backward pass writes or adds gradients of what it saw. Sums of keys that
  /// this rank's queries do not see begin as zeros.
  template <class G>
  kernels::KeyValues<G> sums(int key_part) const {
    const kernels::KeyValues<G> sums = in_whole<G>(&KeyBuffers::gradient, key_part);
    const bool reaches_all = attention_parts(shape_, key_part).back().run.end() == shape_.seq;
    if (!has_later_slices() && !reaches_all)
      Kokkos::deep_copy(exec_, Vector<G>(sums.keys, elements_of_part(shape_.seq)), G{});
    return sums;
  }

  /// Later slices have written sums already.
  bool has_later_slices() const {
    return shape_.has_slices() && shape_.span.begin + shape_.span.count < shape_.seq;
  }

  /// Calls use(G{}) with the type of the gradients.
  template <class Use>
  void with_gradient_type(const Use& use) const {
    if (shape_.fp32_key_gradients)
      use(float{});
    else
      use(E{});
  }

private:
  int parts() const { return shape_.keys_apart() ? shape_.key_parts : 0; }

  template <class T>
  kernels::KeyValues<T> in_whole(Buffer KeyBuffers::* which, int key_part) const {
    const KeyBuffers& all = shape_.has_slices() ? of_slices_ : of_ranks_;
    return rows_of<T>(all.*which, key_part, shape_.seq);
  }

  template <class T>
  kernels::KeyValues<T> exchanged(Buffer KeyBuffers::* which, int key_part) const {
    return shape_.shares_sequences() ? rows_of<T>(of_ranks_.*which, key_part, shape_.span_seq())
                                     : in_whole<T>(which, key_part);
  }

  /// The positions that this rank puts in and takes out, counted in its slice where ranks share
  /// one.
  std::vector<kernels::AttentionPart> exchanged_parts(int key_part) const {
    std::vector<kernels::AttentionPart> parts = attention_parts(shape_, key_part);
    if (shape_.shares_sequences())
      for (kernels::AttentionPart& part : parts) {
        part.run.position -= static_cast<int>(shape_.span.begin);
        part.chunk = static_cast<int>(shape_.chunk());
      }
    return parts;
  }

  /// Positions of a slice between the buffer of the ranks that share it and that of whole
  /// sequences.
  template <class T>
  void move_slice(Buffer KeyBuffers::* which, int key_part, bool to_whole) const {
    const kernels::AttentionPart part = attention_parts(shape_, key_part).front();
    const int begin = static_cast<int>(shape_.span.begin);
    const kernels::QueryRun run{0, static_cast<int>(shape_.span_seq()), begin};
    const kernels::KeyRows of_slice{part.kv_stride, static_cast<int>(shape_.chunk()), begin};
    const kernels::KeyValues<T> slice = exchanged<T>(which, key_part),
                                whole = in_whole<T>(which, key_part),
                                &to = to_whole ? whole : slice, &from = to_whole ? slice : whole;
    kernels::move_key_values<T, T>(exec_,
        part,
        run,
        to,
        to_whole ? part.rows() : of_slice,
        {from.keys, from.values},
        to_whole ? of_slice : part.rows());
  }

  /// Rows of the keys of a part of the heads, then of their values.
  template <class T>
  kernels::KeyValues<T> rows_of(const Buffer& buffer, int key_part, std::int64_t positions) const {
    const std::int64_t elements = elements_of_part(positions);
    T* const keys = buffer.at<T>(key_part * elements * sizeof(T), elements);
    return {keys, keys + shape_.key_values() / shape_.key_parts / 2};
  }

  std::int64_t elements_of_part(std::int64_t positions) const {
    return positions * shape_.micro_batch * shape_.key_values() / shape_.key_parts;
  }

  const ExecutionSpace& exec_;
  const Shape& shape_;
  KeyBuffers of_ranks_, of_slices_;
};
}  // namespace minitaw::model
