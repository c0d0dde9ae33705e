// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include "fixtures.hpp"
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

/// The versions of attention, for typed tests, and one problem for any of them.

namespace minitaw::kernels {
/// What a test can choose; small tiles: on a host, as on a device whose fast memory has no room for
/// others.
template <class Element, Attention version, bool in_small_tiles = false>
struct Version {
  using E = Element;
  static constexpr Attention kernel = version;
  static constexpr bool small = in_small_tiles;
};

using Versions = ::testing::Types<Version<float, Attention::host>,
    Version<float, Attention::portable>,
    Version<Bf16, Attention::portable>,
    Version<float, Attention::portable, true>,
    Version<Bf16, Attention::portable, true>,
    Version<Bf16, Attention::cudnn>>;

struct VersionName {
  template <class V>
  static std::string GetName(int) {
    return name_of(V::kernel) + (V::small ? "_small" : "") +
           (std::is_same_v<typename V::E, Bf16> ? "_bf16" : "_float");
  }
};

/// Tests of one version.
template <class V>
class AttentionFixture : public ::testing::Test {
protected:
  using E = typename V::E;
  static constexpr double near = test::tolerance<E>;

  void SetUp() override {
    prepare(test::exec());
    detail::portable::small_tiles_on_host = V::small;
  }

  void TearDown() override { detail::portable::small_tiles_on_host = false; }

  /// Empty if this build and device can compute it.
  static std::string reason_against(const AttentionPart& part) {
    return test::refusal_of([&] { (void)resolve_attention<E>(V::kernel, {part}); });
  }
};

using test::Doubles, test::exec, test::expect_close;

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// z.seq: rows of each sequence here. chunk 0: keys and values are those in the projection.
struct Case {
  AttentionSizes z;
  QueryRun run;
  int chunk;
  HeadRange kv_heads{};
};

/// All queries, with keys and values in the projection.
inline Case whole(const AttentionSizes& z) {
  return {z, {0, z.seq, 0}, 0};
}

inline std::string text(const Case& c) {
  const AttentionSizes& z = c.z;
  return fmt::format("B{} S{} h{} g{} d{}, rows {} + {} from position {}, chunk {}, head {}",
      z.batch,
      z.seq,
      z.heads,
      z.kv_heads,
      z.head_dim,
      c.run.row,
      c.run.count,
      c.run.position,
      c.chunk,
      c.kv_heads.first);
}

/// Elements that nothing may write are expected to be NaN, as before.
inline void expect_written(Doubles got, Doubles expected, double near) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << "element " << i << " was written";
      got[i] = expected[i] = 0;
    }
  expect_close(got, expected, near);
}

/// The row of a position in KeyValues, as AttentionPart says.
inline std::int64_t row_of(int batch, int chunk, int sequence, int position) {
  return std::int64_t{position / chunk} * chunk * batch + sequence * chunk + position % chunk;
}

/// One case: its operands as they are in the whole sequences, [B, run.end()], and here.
template <class V, class G = typename V::E>
struct Problem {
  using E = typename V::E;
  template <class T>
  using Device = test::DeviceMatrix<T>;

  explicit Problem(const Case& c, bool adds = false, double scale = 2)
      : z(c.z),
        run(c.run),
        heads(c.kv_heads.count > 0 ? c.kv_heads : HeadRange{0, z.kv_heads}),
        own_rows(c.chunk > 0),
        chunk(own_rows ? c.chunk : z.seq),
        width(heads.count * z.head_dim),
        accumulate(adds),
        whole{z.batch, run.end(), z.heads, z.kv_heads, z.head_dim},
        qkv(test::random_values<E>(there.query(z.batch, 0, 0), 1, scale)),
        dy(test::random_values<E>(there.output(z.batch, 0, 0), 2)),
        before(accumulate ? test::random_values<G>(kv_rows() * 2 * width, 3)
                          : Doubles(kv_rows() * 2 * width, nan)),
        in(z.batch * z.seq, here.stride(), local_qkv()),
        slope(z.batch * z.seq, z.heads * z.head_dim, local_dy()),
        gathered(kv_rows(), 2 * width, key_values()),
        y(Device<E>::poisoned(z.batch * z.seq, z.heads * z.head_dim)),
        dqkv(Device<E>::poisoned(z.batch * z.seq, here.stride())),
        lse(Device<float>::poisoned(z.batch * z.heads, z.seq)),
        delta(Device<float>::poisoned(z.batch * z.heads, z.seq)),
        sums(kv_rows(), 2 * width, before) {
    attention_prepare<E>(exec(), part(), V::kernel);
  }

  [[nodiscard]] AttentionPart part() const {
    return {z, run, heads, own_rows ? 2 * width : 0, own_rows ? chunk : 0};
  }

  [[nodiscard]] std::int64_t kv_rows() const {
    return std::int64_t{(run.end() + chunk - 1) / chunk} * chunk * z.batch;
  }

  void forward() {
    launch_forward([&] {
      attention_forward<E>(exec(),
          {y.matrix(), lse.vector(), in.matrix(), part(), pair_of<const E>(gathered)},
          V::kernel);
    });
  }

  void backward() {
    launch_backward([&] { attention_backward(exec(), backward_into(dqkv, sums), V::kernel); });
  }

  [[nodiscard]] AttentionBackward<E, G> backward_into(
      const Device<E>& gradient, const Device<G>& more) const {
    return {.dqkv = gradient.matrix(),
        .delta = delta.vector(),
        .dy = slope.matrix(),
        .qkv = in.matrix(),
        .y = y.matrix(),
        .lse = lse.vector(),
        .part = part(),
        .key_values = pair_of<const E>(gathered),
        .gradient_sums = pair_of<G>(more),
        .accumulate = accumulate};
  }

  template <class T>
  [[nodiscard]] KeyValues<T> pair_of(const auto& matrix) const {
    return {matrix.vector().data(), matrix.vector().data() + width};
  }

  /// use(sequence, position, query head, row here) for the queries of the part.
  void each_query(const auto& use) const {
    const int group = z.group();
    for (int b = 0; b < z.batch; ++b)
      for (int r = 0; r < run.count; ++r)
        for (int head = heads.first * group; head < (heads.first + heads.count) * group; ++head)
          use(b, run.position + r, head, run.row + r);
  }

  /// use(sequence, position, a query head that reads it, place in KeyValues) for the keys.
  void each_key(const auto& use) const {
    for (int b = 0; b < z.batch; ++b)
      for (int j = 0; j < run.end(); ++j)
        for (int g = 0; g < heads.count; ++g)
          use(b,
              j,
              (heads.first + g) * z.group(),
              row_of(z.batch, chunk, b, j) * 2 * width + g * z.head_dim);
  }

  /// head_dim elements.
  void copy(Doubles& to, std::int64_t at, const Doubles& from, std::int64_t from_at) const {
    std::copy_n(from.begin() + from_at, z.head_dim, to.begin() + at);
  }

  [[nodiscard]] Doubles local_qkv() const {
    Doubles rows(here.query(z.batch, 0, 0), nan);
    each_query([&](int b, int position, int head, int row) {
      copy(rows, here.query(b, row, head), qkv, there.query(b, position, head));
    });
    if (!own_rows)
      each_key([&](int b, int j, int head, std::int64_t) {
        copy(rows, here.key(b, j, head), qkv, there.key(b, j, head));
        copy(rows, here.value(b, j, head), qkv, there.value(b, j, head));
      });
    return rows;
  }

  [[nodiscard]] Doubles local_dy() const {
    Doubles rows(here.output(z.batch, 0, 0), nan);
    each_query([&](int b, int position, int head, int row) {
      copy(rows, here.output(b, row, head), dy, there.output(b, position, head));
    });
    return rows;
  }

  [[nodiscard]] Doubles key_values() const {
    Doubles rows(kv_rows() * 2 * width, nan);
    each_key([&](int b, int j, int head, std::int64_t at) {
      copy(rows, at, qkv, there.key(b, j, head));
      copy(rows, at + width, qkv, there.value(b, j, head));
    });
    return rows;
  }

  void expect_forward(double near) const {
    const Doubles all = reference::attention_forward(qkv, whole);
    Doubles outputs(here.output(z.batch, 0, 0), nan), statistics(z.batch * z.heads * z.seq, nan);
    each_query([&](int b, int position, int head, int row) {
      copy(outputs, here.output(b, row, head), all, there.output(b, position, head));
      const double score =
          reference::dot(
              qkv, qkv, there.query(b, position, head), there.key(b, position, head), z.head_dim) /
          std::sqrt(z.head_dim);
      statistics[(b * z.heads + head) * z.seq + row] =
          score - std::log(reference::attention_row(qkv, whole, b, position, head).back());
    });
    expect_written(y.values(), outputs, near);
    expect_written(lse.values(), statistics, 1e-5);
  }

  void expect_backward(double near) const {
    Doubles of_run = dy;  // queries before the run add nothing
    for (int b = 0; b < z.batch; ++b)
      std::fill_n(of_run.begin() + there.output(b, 0, 0), there.output(0, run.position, 0), 0);
    const Doubles all = reference::attention_backward(of_run, qkv, whole);
    Doubles gradient(here.query(z.batch, 0, 0), nan), of_keys = before;
    each_query([&](int b, int position, int head, int row) {
      copy(gradient, here.query(b, row, head), all, there.query(b, position, head));
    });
    each_key([&](int b, int j, int head, std::int64_t at) {
      if (!own_rows) {
        copy(gradient, here.key(b, j, head), all, there.key(b, j, head));
        copy(gradient, here.value(b, j, head), all, there.value(b, j, head));
        return;
      }
      for (int i = 0; i < z.head_dim; ++i) {
        double &key = of_keys[at + i], &value = of_keys[at + width + i];
        key = (accumulate ? key : 0) + all[there.key(b, j, head) + i];
        value = (accumulate ? value : 0) + all[there.value(b, j, head) + i];
      }
    });
    expect_written(dqkv.values(), gradient, near);
    expect_written(sums.values(), of_keys, near);
  }

  AttentionSizes z;
  QueryRun run;
  HeadRange heads;
  bool own_rows;
  int chunk, width;
  bool accumulate;
  AttentionSizes whole;
  reference::Places here{z}, there{whole};
  Doubles qkv, dy, before;
  Device<E> in, slope, gathered, y, dqkv;
  Device<float> lse, delta;
  Device<G> sums;
  test::Launch launch_forward, launch_backward;
};
}  // namespace minitaw::kernels
