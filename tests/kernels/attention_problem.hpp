// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/detail/backends.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/reference.hpp"

/// One problem for any version of attention.
namespace minitaw::kernels {
using test::Doubles, test::exec, test::nan;

/// Elements of an operand, and those of whole sequences that they have the values of.
class Places {
public:
  explicit Places(std::int64_t elements) : elements_(elements) {}

  [[nodiscard]] std::int64_t elements() const { return elements_; }

  void add(std::int64_t here, std::int64_t there, int count) {
    for (int i = 0; i < count; ++i)
      pairs_.emplace_back(here + i, there + i);
  }

  [[nodiscard]] Doubles filled(const Doubles& whole, double elsewhere = nan) const {
    Doubles values(elements_, elsewhere);
    for (const auto& [here, there] : pairs_)
      values[here] = whole[there];
    return values;
  }

  /// Whole sequences that have zeros where this has nothing.
  [[nodiscard]] Doubles only(const Doubles& whole) const {
    Doubles values(whole.size(), 0);
    for (const auto& pair : pairs_)
      values[pair.second] = whole[pair.second];
    return values;
  }

private:
  std::int64_t elements_;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs_;
};

/// A part of attention of whole sequences, [B, run.end()], and where its operands have what. In
/// buffers values begin in the middle of rows.
struct PlacedPart {
  explicit PlacedPart(const AttentionPart& p) : part(p) {
    for (int b = 0; b < z.batch; ++b)
      for (int i = 0; i < part.heads().count; ++i) {
        const int head = part.heads().first + i, of_lse = b * z.heads + head;
        for (int r = 0; r < part.run.count; ++r) {
          const int row = part.run.row + r, position = part.run.position + r;
          in_qkv.add(here.query(b, row, head), there.query(b, position, head), z.head_dim);
          in_y.add(here.output(b, row, head), there.output(b, position, head), z.head_dim);
          in_lse.add(of_lse * z.seq + row, of_lse * whole.seq + position, 1);
        }
        for (int j = 0; j < whole.seq; ++j)
          add_key(b, j, head, i / z.group() * z.head_dim);
      }
  }

  /// A key and a value that a query head reads, or where they are `column` elements into a row.
  void add_key(int b, int j, int head, int column) {
    const std::int64_t key = there.key(b, j, head), value = there.value(b, j, head);
    if (part.own_rows) {
      const int row = (j / part.chunk * z.batch + b) * part.chunk + j % part.chunk;
      const std::int64_t at = row * part.kv_stride + column;
      in_buffers.add(at, key, z.head_dim);
      in_buffers.add(at + part.kv_stride / 2, value, z.head_dim);
    } else {
      in_qkv.add(here.key(b, j, head), key, z.head_dim);
      in_qkv.add(here.value(b, j, head), value, z.head_dim);
    }
  }

  AttentionPart part;
  AttentionSizes z = part.z, whole{z.batch, part.run.end(), z.heads, z.kv_heads, z.head_dim};
  reference::Places here{z}, there{whole};
  std::int64_t rows = z.batch * z.seq, chunks = (whole.seq + part.chunk - 1) / part.chunk;
  Places in_qkv{rows * part.row_of_qkv()}, in_y{rows * part.row_of_y()}, in_lse{rows * z.heads},
      in_buffers{part.own_rows ? chunks * part.chunk * z.batch * part.kv_stride : 0};
};

/// Elements that nothing may write are expected to be NaN, as before.
inline void expect_written(Doubles got, Doubles expected, double near) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isnan(expected.at(i)) && std::isnan(got[i]))
      got[i] = expected[i] = 0;
  test::expect_close(got, expected, near);
}

template <class V, class G = typename V::E>
struct Problem : PlacedPart {
  using E = typename V::E;
  template <class T>
  using Device = test::DeviceMatrix<T>;

  explicit Problem(const AttentionPart& of, bool adds = false, double scale = 2)
      : PlacedPart(of),
        accumulate(adds),
        qkv(test::random_values<E>(there.query(z.batch, 0, 0), 1, scale)),
        dy(test::random_values<E>(there.output(z.batch, 0, 0), 2)),
        in(rows, part.row_of_qkv(), in_qkv.filled(qkv)),
        slope(rows, part.row_of_y(), in_y.filled(dy)),
        key_values(in_buffers.filled(qkv)),
        before(accumulate ? test::random_values<G>(in_buffers.elements(), 3)
                          : Doubles(in_buffers.elements(), nan)),
        sums(before) {
    attention_prepare<E>(exec(), part, V::kernel);
  }

  void forward() {
    launch_forward([&] {
      attention_forward<E>(exec(),
          {y.matrix(), lse.vector(), in.matrix(), part, halves<const E>(key_values)},
          V::kernel);
    });
  }

  void backward() {
    launch_backward([&] { attention_backward(exec(), backward_call(), V::kernel); });
  }

  [[nodiscard]] AttentionBackward<E, G> backward_call() const {
    return {.dqkv = dqkv.matrix(),
        .delta = delta.vector(),
        .dy = slope.matrix(),
        .qkv = in.matrix(),
        .y = y.matrix(),
        .lse = lse.vector(),
        .part = part,
        .key_values = halves<const E>(key_values),
        .gradient_sums = halves<G>(sums),
        .accumulate = accumulate};
  }

  template <class T>
  [[nodiscard]] KeyValues<T> halves(const auto& buffer) const {
    T* const keys = buffer.vector().data();
    return {keys, keys + part.kv_stride / 2};
  }

  void expect_forward(double near) const {
    Doubles statistics;
    reference::for_queries(whole, [&](int b, int head, int s) {
      const double score =
          reference::dot(qkv, qkv, there.query(b, s, head), there.key(b, s, head), z.head_dim);
      statistics.push_back(score / std::sqrt(z.head_dim) -
                           std::log(reference::attention_row(qkv, whole, b, s, head).back()));
    });
    expect_written(y.values(), in_y.filled(reference::attention_forward(qkv, whole)), near);
    expect_written(lse.values(), in_lse.filled(statistics), 1e-5);
  }

  /// Queries before the run add nothing.
  void expect_backward(double near) const {
    const Doubles all = reference::attention_backward(in_y.only(dy), qkv, whole);
    expect_written(dqkv.values(), in_qkv.filled(all), near);
    expect_written(sums.values(),
        accumulate ? test::sum_of(in_buffers.filled(all, 0), before) : in_buffers.filled(all),
        near);
  }

  bool accumulate;
  Doubles qkv, dy;
  Device<E> in, slope, key_values;
  Doubles before;
  Device<G> sums;
  Device<E> y = Device<E>::poisoned(rows, part.row_of_y()),
            dqkv = Device<E>::poisoned(rows, part.row_of_qkv());
  Device<float> lse = Device<float>::poisoned(rows * z.heads), delta = lse.poisoned(rows * z.heads);
  test::Launch launch_forward, launch_backward;
};
}  // namespace minitaw::kernels
