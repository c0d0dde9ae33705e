// SPDX-License-Identifier: BSD-3-Clause
// Attention of runs of queries whose keys and values lie in the fused projection or in buffers of
// their own, against the plain double-precision attention of the whole sequences. What a call must
// not read or write holds NaN.
#include "kernels/attention_problem.hpp"

namespace minitaw::kernels {
namespace {
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

template <class V>
class AttentionRuns : public AttentionFixture<V> {
protected:
  static bool left_out(const AttentionSizes& z, int keys) {
    return test::left_out(std::int64_t{z.batch} * z.heads * z.seq * keys) ||
           (detail::threads_on_host > 1 && z.seq > 40);
  }

  /// A case in each way that gradients of keys may be kept.
  template <class G>
  static void expect_case(const Case& c, bool accumulate) {
    Problem<V, G> p(c, accumulate);
    p.forward();
    p.forward();  // quietly
    p.expect_forward(AttentionRuns::near);
    p.backward();
    if (!accumulate)
      p.backward();
    p.expect_backward(AttentionRuns::near);
  }
};

TYPED_TEST_SUITE(AttentionRuns, Versions, VersionName);

TYPED_TEST(AttentionRuns, SeeTheKeysUpToTheirOwn) {
  using E = typename TypeParam::E;
  int possible = 0;
  for (const Case& c : cases) {
    const std::int64_t stride = c.chunk > 0 ? 2 * c.z.kv_heads * c.z.head_dim : 0;
    if (!this->reason_against({c.z, c.run, c.kv_heads, stride, c.chunk}).empty())
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
    GTEST_SKIP() << this->reason_against(AttentionSizes{1, 64, 2, 2, 64});
}

/// All of a sequence, keys and values in a buffer of their own or in the projection.
TYPED_TEST(AttentionRuns, FromTheFirstPositionHaveTheSameBitsInBothForms) {
  const AttentionSizes z{2, 139, 4, 2, 8};
  if (TypeParam::kernel == Attention::cudnn || !this->reason_against(z).empty())
    GTEST_SKIP() << "not here, or cuDNN, which sums in any order";
  if (detail::threads_on_host > 1)
    GTEST_SKIP() << "too long for teams";
  Problem<TypeParam> own({z, {0, z.seq, 0}, z.seq}), fused(whole(z));
  for (auto* p : {&own, &fused}) {
    p->forward();
    p->backward();
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
    return {local, run, {p * whole.kv_heads / parts, whole.kv_heads / parts}, 2 * kv_width, chunk};
  }

  template <class T>
  [[nodiscard]] KeyValues<T> pair_of(const auto& matrix) const {
    return {matrix.vector().data(), matrix.vector().data() + kv_width};
  }

  void gather(int p) const {
    for (const Rank& r : all)
      for (const QueryRun& run : r.runs)
        gather(r, part(run, p));
  }

  void gather(const Rank& r, const AttentionPart& part) const {
    move_key_values<E, E>(exec(),
        part,
        part.run,
        pair_of<E>(gathered),
        part.rows(),
        part.template in<const E>(r.qkv.vector().data()),
        part.rows_in_qkv());
  }

  void take(const Rank& r, const AttentionPart& part) const {
    move_key_values<E, float>(exec(),
        part,
        part.run,
        part.in(r.dqkv.vector().data()),
        part.rows_in_qkv(),
        pair_of<const float>(gradient),
        part.rows());
  }

  void forward(int p) const {
    gather(p);
    for (const Rank& r : all)
      for (const QueryRun& run : r.runs)
        attention_forward<E>(exec(),
            {r.y.matrix(),
                r.lse.vector(),
                r.qkv.matrix(),
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
      const Device<float> sums(
          whole.batch * whole.seq, 2 * kv_width, Doubles(whole.batch * whole.seq * 2 * kv_width));
      for (const int run : {1, 0})
        attention_backward<E, float>(exec(),
            {.dqkv = r.dqkv.matrix(),
                .delta = r.delta.vector(),
                .dy = r.slope.matrix(),
                .qkv = r.qkv.matrix(),
                .y = r.y.matrix(),
                .lse = r.lse.vector(),
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
        take(r, part(run, p));
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
        const AttentionSizes local{batch, 2 * chunk, 4, 2, 8};
        const AttentionPart last{local, {chunk, chunk, whole.seq - chunk}, {}, 32, chunk};
        if (!this->reason_against(last).empty() || this->left_out(local, whole.seq))
          continue;
        ++possible;
        SCOPED_TRACE(::testing::Message() << n << " ranks, " << batch << ", parts " << parts);
        Ranks<V> ranks(n, chunk, whole, parts);
        for (int p = 0; p < parts; ++p) {
          for (const auto& rank : ranks.all)
            for (const QueryRun& run : rank.runs)
              attention_prepare<typename V::E>(exec(), ranks.part(run, p), V::kernel);
          ranks.forward(p);
          ranks.backward(p);
        }
        const auto y = ranks.united(4 * 8, [](const auto& rank) { return rank.y; });
        expect_close(y, reference::attention_forward(ranks.qkv, whole), this->near);
        const auto dqkv = ranks.united(8 * 8, [](const auto& rank) { return rank.dqkv; });
        expect_close(dqkv, reference::attention_backward(ranks.dy, ranks.qkv, whole), this->near);
      }
  if (possible == 0)
    GTEST_SKIP() << this->reason_against(AttentionSizes{1, 64, 2, 2, 64});
}

TEST(AttentionRunsByTasks, GiveTheSameBits) {
  for (const Case& c : cases)
    expect_same_bits_by_tasks(c, c.chunk > 0);
}

TEST(AttentionPart, IsInsideOfWhatItIsAPartOf) {
  const AttentionSizes z{2, 10, 4, 2, 8};
  const auto refused = [&](const QueryRun& run,
                           const HeadRange& kv_heads = {},
                           std::int64_t stride = 0,
                           int chunk = 0) {
    EXPECT_THROW(AttentionPart(z, run, kv_heads, stride, chunk), LogicError);
  };
  refused({4, 7, 0});               // after the last row
  refused({0, 5, 6});               // keys after the last row
  refused({0, 5, -1}, {}, 32, 10);  // before the first
  refused({}, {1, 2});
  refused({}, {}, 15, 10);  // rows that overlap
  refused({}, {}, 32);      // chunks of nothing
  const AttentionPart inside(z, {5, 5, 100}, {}, 16, 10);
  EXPECT_EQ(resolve_attention<float>(Attention::portable, {inside}).kernel, Attention::portable);
}

TEST(AttentionPart, NeedsTheBuffersThatItSpeaksOf) {
  const AttentionSizes z{1, 10, 4, 2, 8};
  const Problem<Version<float, Attention::portable>> p({z, {0, 10, 0}, 10}, true);
  AttentionBackward<float> without = p.backward_into(p.dqkv, p.sums);
  without.gradient_sums = {};
  EXPECT_THROW(attention_backward(exec(), without), LogicError);
  without = p.backward_into(p.dqkv, p.sums);
  without.part = z;
  EXPECT_THROW(attention_backward(exec(), without), LogicError);  // nothing to add to
  EXPECT_THROW(
      attention_forward<float>(exec(), {p.y.matrix(), p.lse.vector(), p.in.matrix(), p.part(), {}}),
      LogicError);
}
}  // namespace
}  // namespace minitaw::kernels
