// SPDX-License-Identifier: BSD-3-Clause
// Attention of runs of queries whose keys and values lie in the fused projection or in buffers of
// their own, against the plain double-precision attention of the whole sequences. What a call must
// not read or write holds NaN.
#include "fixtures.hpp"
#include "kernels/attention_versions.hpp"
#include "kernels/detail/backends.hpp"
#include "kernels/reference.hpp"

namespace minitaw::kernels {
namespace {
using test::Doubles, test::exec, test::expect_close;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// z.seq: rows of each sequence here. chunk 0: keys and values are those in the projection.
struct Case {
  AttentionSizes z;
  QueryRun run;
  int chunk;
  HeadRange kv_heads{};
};

const std::vector<Case> cases = {{{1, 40, 2, 2, 32}, {0, 40, 0}, 40},  // all of it
    {{3, 11, 4, 2, 6}, {4, 7, 20}, 27},                                // one chunk, [B, S]
    {{2, 9, 6, 3, 10}, {0, 9, 36}, 9},             // chunks, each with all sequences
    {{1, 150, 4, 2, 64}, {0, 150, 70}, 55},        // more queries than keys before them
    {{3, 140, 4, 1, 4}, {3, 133, 131}, 37},        // tiles across chunks
    {{2, 300, 2, 2, 8}, {100, 200, 57}, 100},      // tiles cut by run and prefix
    {{2, 1, 6, 3, 10}, {0, 1, 130}, 50},           // one query, tiles that begin in a chunk
    {{1, 33, 2, 1, 256}, {0, 33, 256}, 17},        // small chunks
    {{2, 20, 4, 2, 16}, {5, 15, 30}, 45},          //
    {{1, 24, 4, 2, 24}, {4, 20, 50}, 10},          //
    {{2, 50, 4, 2, 8}, {20, 30, 20}, 0},           // in the projection
    {{1, 300, 2, 1, 72}, {13, 200, 13}, 0},        //
    {{2, 30, 8, 4, 8}, {10, 20, 13}, 33, {1, 2}},  // some heads
    {{1, 30, 6, 3, 10}, {10, 20, 13}, 11, {2, 1}},
    {{2, 30, 6, 3, 16}, {7, 23, 7}, 0, {0, 2}}};

std::string text(const Case& c) {
  return kernels::text(c.z) + " row " + std::to_string(c.run.row) + " position " +
         std::to_string(c.run.position) + " count " + std::to_string(c.run.count) + " chunk " +
         std::to_string(c.chunk) + " heads " + std::to_string(c.kv_heads.first);
}

/// Elements that nothing may write are expected to be NaN, as before.
void expect_written(const Doubles& got, const Doubles& expected, double near) {
  Doubles written, right;
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << "element " << i << " was written";
    } else {
      written.push_back(got[i]);
      right.push_back(expected[i]);
    }
  expect_close(written, right, near);
}

/// The row of a position in KeyValues, as AttentionPart says.
std::int64_t row_of(int batch, int chunk, int sequence, int position) {
  return std::int64_t{position / chunk} * chunk * batch + sequence * chunk + position % chunk;
}

/// One case: its operands as they are in the whole sequences, [B, run.end()], and here.
template <class V, class G>
struct RunProblem {
  using E = typename V::E;
  template <class T>
  using Device = test::DeviceMatrix<T>;

  RunProblem(const Case& c, bool adds)
      : z(c.z),
        run(c.run),
        heads(c.kv_heads.count > 0 ? c.kv_heads : HeadRange{0, z.kv_heads}),
        own_rows(c.chunk > 0),
        chunk(own_rows ? c.chunk : z.seq),
        width(heads.count * z.head_dim),
        accumulate(adds),
        whole{z.batch, run.end(), z.heads, z.kv_heads, z.head_dim},
        qkv(test::random_values<E>(there.query(z.batch, 0, 0), 1, 2)),
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
    attention_prepare<E>(exec(), z, V::kernel, part());
  }

  [[nodiscard]] AttentionPart part() const {
    return {run, heads, own_rows ? 2 * width : 0, own_rows ? chunk : 0};
  }

  [[nodiscard]] std::int64_t kv_rows() const {
    return std::int64_t{(run.end() + chunk - 1) / chunk} * chunk * z.batch;
  }

  void forward() const {
    attention_forward<E>(exec(),
        {y.matrix(), lse.vector(), in.matrix(), z, part(), pair_of<const E>(gathered)},
        V::kernel);
  }

  void backward() const { attention_backward(exec(), backward_into(dqkv, sums), V::kernel); }

  [[nodiscard]] AttentionBackward<E, G> backward_into(
      const Device<E>& gradient, const Device<G>& more) const {
    return {.dqkv = gradient.matrix(),
        .delta = delta.vector(),
        .dy = slope.matrix(),
        .qkv = in.matrix(),
        .y = y.matrix(),
        .lse = lse.vector(),
        .sizes = z,
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
    const Doubles all = reference::attention_forward(qkv, whole, run.position);
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
    const Doubles all = reference::attention_backward(dy, qkv, whole, run.position);
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
};

template <class V>
class AttentionRuns : public ::testing::Test {
protected:
  using E = typename V::E;
  static constexpr double near = test::tolerance<E>;

  void SetUp() override { detail::portable::small_tiles_on_host = V::small; }

  void TearDown() override { detail::portable::small_tiles_on_host = false; }

  /// Empty if this build and device can compute it.
  static std::string reason_against(const AttentionSizes& z, const AttentionPart& part) {
    return test::refusal_of([&] { (void)resolve_attention<E>(V::kernel, z, part); });
  }

  static bool left_out(const AttentionSizes& z, int keys) {
    return test::left_out(std::int64_t{z.batch} * z.heads * z.seq * keys) ||
           (detail::threads_on_host > 1 && z.seq > 40);
  }

  /// A case in each way that gradients of keys may be kept.
  template <class G>
  static void expect_case(const Case& c, bool accumulate) {
    RunProblem<V, G> p(c, accumulate);
    p.forward();
    exec().fence();
    p.expect_forward(near);
    p.backward();
    exec().fence();
    p.expect_backward(near);
  }
};

TYPED_TEST_SUITE(AttentionRuns, Versions, VersionName);

TYPED_TEST(AttentionRuns, SeeTheKeysUpToTheirOwn) {
  using E = typename TypeParam::E;
  int possible = 0;
  for (const Case& c : cases) {
    const std::int64_t stride = c.chunk > 0 ? 2 * c.z.kv_heads * c.z.head_dim : 0;
    if (!this->reason_against(c.z, {c.run, c.kv_heads, stride, c.chunk}).empty())
      continue;
    ++possible;
    if (this->left_out(c.z, c.run.end()))
      continue;
    SCOPED_TRACE(text(c));
    this->template expect_case<E>(c, false);
    if (c.chunk == 0)
      continue;
    this->template expect_case<E>(c, true);
    this->template expect_case<float>(c, false);
    this->template expect_case<float>(c, true);
  }
  if (possible == 0)
    GTEST_SKIP() << this->reason_against({1, 64, 2, 2, 64}, {});
}

/// All of a sequence, keys and values in a buffer of their own or in the projection.
TYPED_TEST(AttentionRuns, FromTheFirstPositionHaveTheSameBitsInBothForms) {
  using E = typename TypeParam::E;
  const AttentionSizes z{2, 139, 4, 2, 8};
  if (TypeParam::kernel == Attention::cudnn || !this->reason_against(z, {}).empty())
    GTEST_SKIP() << "not here, or cuDNN, which sums in any order";
  if (detail::threads_on_host > 1)
    GTEST_SKIP() << "too long for teams";
  const RunProblem<TypeParam, E> own({z, {0, z.seq, 0}, z.seq}, false),
      fused({z, {0, z.seq, 0}, 0}, false);
  for (const auto* p : {&own, &fused}) {
    p->forward();
    p->backward();
    exec().fence();
  }
  EXPECT_EQ(own.y.values(), fused.y.values());
  EXPECT_EQ(own.lse.values(), fused.lse.values());
  Doubles united = own.dqkv.values();
  const Doubles sums = own.sums.values();
  own.each_key([&](int b, int j, int head, std::int64_t at) {
    own.copy(united, own.here.key(b, j, head), sums, at);
    own.copy(united, own.here.value(b, j, head), sums, at + own.width);
  });
  EXPECT_EQ(united, fused.dqkv.values());
}

/// Ranks that share sequences: each has the rows of a head and a tail chunk, as `context` cuts
/// them, and attends to what is gathered of all. kv_heads are taken in `parts`.
template <class V>
struct Ranks {
  using E = typename V::E;
  template <class T>
  using Device = test::DeviceMatrix<T>;

  struct Rank {
    std::array<QueryRun, 2> runs;
    Device<E> qkv, slope, y, dqkv;
    Device<float> lse, delta;
  };

  Ranks(int ranks, int chunk_rows, const AttentionSizes& sizes, int head_parts)
      : n(ranks),
        chunk(chunk_rows),
        parts(head_parts),
        whole(sizes),
        local{whole.batch, 2 * chunk, whole.heads, whole.kv_heads, whole.head_dim},
        qkv(test::random_values<E>(reference::Places{whole}.query(whole.batch, 0, 0), 1, 2)),
        dy(test::random_values<E>(reference::Places{whole}.output(whole.batch, 0, 0), 2)),
        kv_width(whole.kv_heads / parts * whole.head_dim),
        gathered(Device<E>::poisoned(whole.batch * whole.seq, 2 * kv_width)),
        gradient(whole.batch * whole.seq,
            2 * kv_width,
            Doubles(whole.batch * whole.seq * 2 * kv_width)) {
    for (int i = 0; i < n; ++i)
      all.push_back(rank(i));
  }

  Rank rank(int i) const {
    const std::int64_t rows = whole.batch * 2 * chunk, row = reference::Places{whole}.stride(),
                       outputs = whole.heads * whole.head_dim;
    const std::array runs = {
        QueryRun{0, chunk, i * chunk}, QueryRun{chunk, chunk, (2 * n - 1 - i) * chunk}};
    return {runs,
        Device<E>(rows, row, rows_of(qkv, row, runs)),
        Device<E>(rows, outputs, rows_of(dy, outputs, runs)),
        Device<E>::poisoned(rows, outputs),
        Device<E>::poisoned(rows, row),
        Device<float>::poisoned(whole.batch * whole.heads, 2 * chunk),
        Device<float>::poisoned(whole.batch * whole.heads, 2 * chunk)};
  }

  /// use(row here, row in [B, S]) for all rows of the runs.
  void each_row(const std::array<QueryRun, 2>& runs, const auto& use) const {
    for (int b = 0; b < whole.batch; ++b)
      for (const QueryRun& run : runs)
        for (int r = 0; r < run.count; ++r)
          use(b * local.seq + run.row + r, b * whole.seq + run.position + r);
  }

  Doubles rows_of(
      const Doubles& of_all, std::int64_t row, const std::array<QueryRun, 2>& runs) const {
    Doubles rows(whole.batch * local.seq * row);
    each_row(runs, [&](std::int64_t here, std::int64_t there) {
      std::copy_n(of_all.begin() + there * row, row, rows.begin() + here * row);
    });
    return rows;
  }

  [[nodiscard]] AttentionPart part(const QueryRun& run, int p) const {
    return {run, {p * whole.kv_heads / parts, whole.kv_heads / parts}, 2 * kv_width, chunk};
  }

  template <class T>
  [[nodiscard]] KeyValues<T> pair_of(const auto& matrix) const {
    return {matrix.vector().data(), matrix.vector().data() + kv_width};
  }

  void gather(int p) const {
    for (const Rank& r : all)
      for (const QueryRun& run : r.runs)
        copy_key_values<E>(exec(), pair_of<E>(gathered), r.qkv.matrix(), local, part(run, p));
  }

  void forward(int p) const {
    gather(p);
    for (const Rank& r : all)
      for (const QueryRun& run : r.runs)
        attention_forward<E>(exec(),
            {r.y.matrix(),
                r.lse.vector(),
                r.qkv.matrix(),
                local,
                part(run, p),
                pair_of<const E>(gathered)},
            V::kernel);
    exec().fence();
  }

  /// The tail sees all that the head sees: it writes, the head adds. What ranks have is summed
  /// here, in double precision.
  void backward(int p) {
    gather(p);
    Doubles total(gradient.values().size());
    for (const Rank& r : all) {
      const auto sums = Device<float>::poisoned(whole.batch * whole.seq, 2 * kv_width);
      clear_key_values(exec(), pair_of<float>(sums), local, part(r.runs[1], p), whole.seq);
      for (const int run : {1, 0})
        attention_backward<E, float>(exec(),
            {.dqkv = r.dqkv.matrix(),
                .delta = r.delta.vector(),
                .dy = r.slope.matrix(),
                .qkv = r.qkv.matrix(),
                .y = r.y.matrix(),
                .lse = r.lse.vector(),
                .sizes = local,
                .part = part(r.runs[run], p),
                .key_values = pair_of<const E>(gathered),
                .gradient_sums = pair_of<float>(sums),
                .accumulate = run == 0},
            V::kernel);
      exec().fence();
      const Doubles own = sums.values();
      std::ranges::transform(total, own, total.begin(), std::plus());
    }
    gradient = Device<float>(whole.batch * whole.seq, 2 * kv_width, total);
    for (const Rank& r : all)
      for (const QueryRun& run : r.runs)
        take_key_values<E, float>(
            exec(), r.dqkv.matrix(), pair_of<const float>(gradient), local, part(run, p));
    exec().fence();
  }

  /// Rows of all ranks where they are in [B, S].
  Doubles united(std::int64_t row, const auto& matrix_of) const {
    Doubles of_all(whole.batch * whole.seq * row, nan);
    for (const Rank& r : all) {
      const Doubles own = matrix_of(r).values();
      each_row(r.runs, [&](std::int64_t here, std::int64_t there) {
        std::copy_n(own.begin() + here * row, row, of_all.begin() + there * row);
      });
    }
    return of_all;
  }

  int n, chunk, parts;
  AttentionSizes whole, local;
  Doubles qkv, dy;
  int kv_width;
  Device<E> gathered;
  Device<float> gradient;
  std::vector<Rank> all;
};

TYPED_TEST(AttentionRuns, OfRanksMakeTheWholeSequence) {
  using V = TypeParam;
  int possible = 0;
  for (const int n : {2, 3})
    for (const int batch : {1, 3})
      for (const int parts : {1, 2}) {
        const int chunk = 21;
        const AttentionSizes whole{batch, 2 * n * chunk, 4, 2, 8};
        const AttentionPart last{{chunk, chunk, whole.seq - chunk}, {}, 32, chunk};
        const AttentionSizes local{batch, 2 * chunk, 4, 2, 8};
        if (!this->reason_against(local, last).empty() || this->left_out(local, whole.seq))
          continue;
        ++possible;
        SCOPED_TRACE(::testing::Message() << n << " ranks, " << batch << ", parts " << parts);
        Ranks<V> ranks(n, chunk, whole, parts);
        for (int p = 0; p < parts; ++p) {
          for (const auto& rank : ranks.all)
            for (const QueryRun& run : rank.runs)
              attention_prepare<typename V::E>(exec(), local, V::kernel, ranks.part(run, p));
          ranks.forward(p);
          ranks.backward(p);
        }
        const auto y = ranks.united(4 * 8, [](const auto& rank) { return rank.y; });
        expect_close(y, reference::attention_forward(ranks.qkv, whole), this->near);
        const auto dqkv = ranks.united(8 * 8, [](const auto& rank) { return rank.dqkv; });
        expect_close(dqkv, reference::attention_backward(ranks.dy, ranks.qkv, whole), this->near);
      }
  if (possible == 0)
    GTEST_SKIP() << this->reason_against({1, 64, 2, 2, 64}, {});
}

/// The host's backward pass, shared among threads by heads and by tiles.
TEST(AttentionRunsTasks, GiveTheSameBits) {
  if constexpr (on_host) {
    using detail::host::Tasks;
    for (const Case& c : cases) {
      SCOPED_TRACE(text(c));
      const RunProblem<Version<float, Attention::host>, float> p(c, c.chunk > 0);
      p.forward();
      const auto backward = [&](Tasks tasks) {
        const auto dqkv = test::DeviceMatrix<float>::poisoned(p.z.batch * p.z.seq, p.here.stride());
        const test::DeviceMatrix<float> sums(p.kv_rows(), 2 * p.width, p.before);
        detail::host::attention_backward(exec(), p.backward_into(dqkv, sums), tasks);
        exec().fence();
        return std::pair(dqkv.values(), sums.values());
      };
      const auto by_heads = backward(Tasks::heads), by_tiles = backward(Tasks::tiles);
      expect_written(by_tiles.first, by_heads.first, 1e-300);
      expect_written(by_tiles.second, by_heads.second, 1e-300);
    }
  }
}

TEST(AttentionPart, IsInsideOfWhatItIsAPartOf) {
  const AttentionSizes z{2, 10, 4, 2, 8};
  const auto refused = [&](const AttentionPart& part) {
    EXPECT_THROW((void)resolve_attention<float>(Attention::portable, z, part), LogicError);
  };
  refused({.run = {4, 7, 0}});                              // after the last row
  refused({.run = {0, 5, 6}});                              // keys after the last row
  refused({.run = {0, 5, -1}, .stride = 32, .chunk = 10});  // before the first
  refused({.kv_heads = {1, 2}});
  refused({.stride = 15, .chunk = 10});  // rows that overlap
  refused({.stride = 32});               // chunks of nothing
  EXPECT_EQ(resolve_attention<float>(
                Attention::portable, z, {.run = {5, 5, 100}, .stride = 16, .chunk = 10}),
      Attention::portable);
}

TEST(AttentionPart, NeedsTheBuffersThatItSpeaksOf) {
  const AttentionSizes z{1, 10, 4, 2, 8};
  const RunProblem<Version<float, Attention::portable>, float> p({z, {0, 10, 0}, 10}, true);
  AttentionBackward<float> without = p.backward_into(p.dqkv, p.sums);
  without.gradient_sums = {};
  EXPECT_THROW(attention_backward(exec(), without), LogicError);
  without = p.backward_into(p.dqkv, p.sums);
  without.part.stride = 0;
  EXPECT_THROW(attention_backward(exec(), without), LogicError);  // nothing to add to
  EXPECT_THROW(attention_forward<float>(
                   exec(), {p.y.matrix(), p.lse.vector(), p.in.matrix(), z, p.part(), {}}),
      LogicError);
}
}  // namespace
}  // namespace minitaw::kernels
