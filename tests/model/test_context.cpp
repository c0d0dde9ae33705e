// SPDX-License-Identifier: BSD-3-Clause
// Models of ranks that share sequences, segment by segment. What passes between ranks, the test
// copies and adds up itself.
#include <deque>
#include "base/error.hpp"
#include "model/cases.hpp"
#include "model/model.hpp"
#include "model/training_loop.hpp"

namespace minitaw::model {
namespace {
using test::DeviceBuffer, test::Divided;
constexpr int micro_batches = test::default_batches;
constexpr std::uint64_t seed = test::default_seed;

std::vector<std::byte> bytes_in(const Buffer& buffer) {
  using View = Kokkos::View<std::byte*, kernels::MemorySpace, Kokkos::MemoryUnmanaged>;
  std::vector<std::byte> bytes(buffer.bytes);
  Kokkos::deep_copy(Kokkos::View<std::byte*, Kokkos::HostSpace>(bytes.data(), bytes.size()),
      View(buffer.data, buffer.bytes));
  return bytes;
}

void put(const Buffer& buffer, std::vector<std::byte> bytes) {
  using View = Kokkos::View<std::byte*, kernels::MemorySpace, Kokkos::MemoryUnmanaged>;
  Kokkos::deep_copy(View(buffer.data, buffer.bytes),
      Kokkos::View<std::byte*, Kokkos::HostSpace>(bytes.data(), bytes.size()));
}

/// The rank that has a chunk: heads in order, tails back; so for each part of the attention's
/// heads.
int owner_of(int number, int ranks) {
  const int chunk = number % (2 * ranks);
  return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

/// Elements of the keys and values of a block for whole sequences, gathered from all ranks.
std::size_t key_values_of(const Shape& shape) {
  return shape.seq * shape.micro_batch * 2 * shape.kv_heads * shape.head_dim();
}

/// One rank of a context group: its model, and its buffers in just the planned sizes, full of NaN.
struct Rank {
  Rank(const Layout& whole, Part part, double loss_scale)
      : layout(of_part(whole, part)),
        workspace(plan_workspace(layout).bytes),
        hidden(hidden_bytes(layout.shape)),
        keys(key_values_of(layout.shape) * bytes_of(layout.shape.dtype)),
        key_gradient(key_values_of(layout.shape) * bytes_of(layout.shape.key_gradient_dtype())),
        tokens(layout.shape, "synthetic", seed),
        model({}, layout, loss_scale, workspace.get()) {
    for (int m = 0; m < micro_batches; ++m) {
      batches.emplace_back(layout.shape).fill(tokens, 0, m * layout.shape.micro_batch);
      for (const Shard& shard : layout.shards) {
        saved.emplace_back(shard.layers * plan_saved(layout.shape).bytes);
        deferred.emplace_back(shard.layers * plan_deferred(layout.shape).bytes);
      }
    }
    for (const Flat* flat : layout.parts()) {
      std::vector<float> values(flat->elements);
      initialise(values, *flat, layout.shape, seed);
      weights.emplace_back(values, layout.shape.dtype);
      totals.emplace_back(flat->elements * sizeof(float));
    }
  }

  static Layout of_part(Layout layout, Part part) {
    layout.shape.context = part;
    return layout;
  }

  EndBuffers embeddings(int m) const {
    return {.weights = weights.back().get(),
        .hidden = hidden.get(),
        .gradient = totals.back().get(),
        .accumulate = m > 0};
  }

  PassBuffers buffers(int s, int m, bool halves = false) const {
    const std::size_t at = m * layout.shards.size() + s;
    return {.weights = weights[s].get(),
        .saved = saved[at].get(),
        .hidden = hidden.get(),
        .deferred = halves ? deferred[at].get() : Buffer{},
        .of_ranks = {keys.get(), key_gradient.get()},
        .gradient = {.buffer = totals[s].get(), .accumulate = m > 0}};
  }

  Layout layout;
  DeviceBuffer workspace, hidden, keys, key_gradient;
  TokenSource tokens;
  Model model;
  Kokkos::View<double, kernels::MemorySpace> loss{"loss"};
  std::deque<MicroBatch> batches;
  std::deque<DeviceBuffer> saved, deferred;  ///< of each micro-batch and shard
  std::deque<DeviceBuffer> weights, totals;  ///< of each part of the model
};

/// A context group in one process: all ranks execute a segment, then chunks pass between them.
class ContextGroup {
public:
  ContextGroup(const Layout& layout, int count) : layout_(layout), count_(count) {
    const double tokens = static_cast<double>(layout.shape.tokens() * micro_batches);
    for (int i = 0; i < count; ++i)
      ranks_.emplace_back(layout, Part{i, count}, 1 / tokens);
  }

  void forward(int m) {
    each([&](Rank& r) { r.model.embed(r.embeddings(m), r.batches[m]); });
    for (int s = 0; s < shards(); ++s)
      for (int b = 0; b < layout_.shards[s].layers; ++b) {
        ShardPass pass{.shard = s, .segment = Segment::keys, .block = b};
        run(pass, m);
        gather();
        pass.segment = Segment::attend;
        pass.heads.count = layout_.shape.key_parts;
        for (pass.heads.index = 0; pass.heads.index < pass.heads.count; ++pass.heads.index)
          run(pass, m);
      }
    each([&](Rank& r) { r.model.loss(r.embeddings(m), r.loss.data(), r.batches[m]); });
  }

  /// `halves`: only what is towards the input. The keys of a block are there before the block after
  /// it has finished.
  void backward(int m, bool halves) {
    for (int s = shards() - 1; s >= 0; --s) {
      const int last = layout_.shards[s].layers - 1;
      ShardPass pass{.direction = halves ? Direction::backward_input : Direction::backward,
          .shard = s,
          .segment = Segment::keys,
          .block = last};
      run(pass, m);
      for (; pass.block >= 0; --pass.block) {
        gather();
        pass.segment = Segment::attend;
        run(pass, m);
        pass.segment = Segment::weights;
        if (!halves)
          run(pass, m);
        ShardPass before = pass;
        before.segment = Segment::keys;
        if (before.block-- > 0)
          run(before, m);
        scatter_sums();
        pass.segment = Segment::finish;
        run(pass, m);
      }
    }
    each([&](Rank& r) { r.model.embed_backward(r.embeddings(m), r.batches[m]); });
  }

  void weights(int m) {
    for (int s = 0; s < shards(); ++s)
      run({.direction = Direction::backward_weight, .shard = s}, m);
  }

  /// Gradients of all ranks, added up.
  [[nodiscard]] ReferenceTensors totals() const {
    ReferenceTensors sum = reference_zeros(layout_);
    for (const Rank& r : ranks_)
      for (std::size_t p = 0; p < sum.size(); ++p) {
        const std::vector<double> values = r.totals[p].values(Dtype::fp32);
        std::ranges::transform(sum[p], values, sum[p].begin(), std::plus());
      }
    return sum;
  }

  [[nodiscard]] double loss() const {
    double sum = 0;
    for (const Rank& r : ranks_) {
      double part = 0;
      Kokkos::deep_copy(part, r.loss);
      sum += part;
    }
    return sum;
  }

private:
  [[nodiscard]] int shards() const { return static_cast<int>(layout_.shards.size()); }

  /// Of each part of the heads, one part after the other.
  [[nodiscard]] int chunks() const { return 2 * count_ * layout_.shape.key_parts; }

  void run(const ShardPass& pass, int m) {
    each([&](Rank& r) {
      PassBuffers buffers = r.buffers(pass.shard, m, pass.is_half());
      if (pass.direction == Direction::backward_weight)
        buffers.weights = {};
      r.model.run(pass, buffers);
    });
  }

  void each(const auto& execute) {
    for (Rank& r : ranks_)
      execute(r);
    Kokkos::fence();
  }

  /// Every rank gets every chunk of keys and values from its owner.
  void gather() {
    std::vector<std::vector<std::byte>> all;
    for (const Rank& r : ranks_)
      all.push_back(bytes_in(r.keys.get()));
    std::vector<std::byte> gathered(all[0].size());
    const std::size_t chunk = gathered.size() / chunks();
    for (int q = 0; q < chunks(); ++q)
      std::copy_n(
          all[owner_of(q, count_)].begin() + q * chunk, chunk, gathered.begin() + q * chunk);
    for (const Rank& r : ranks_)
      put(r.keys.get(), gathered);
  }

  /// The owner of each chunk gets the sum of its gradients; the others lose it.
  void scatter_sums() {
    const Dtype dtype = ranks_[0].layout.shape.key_gradient_dtype();
    std::vector<std::vector<double>> all;
    for (const Rank& r : ranks_)
      all.push_back(r.key_gradient.values(dtype));
    const std::size_t chunk = all[0].size() / chunks();
    for (int i = 0; i < count_; ++i) {
      std::vector<float> sums(all[0].size(), std::nanf(""));
      for (int q = 0; q < chunks(); ++q)
        for (std::size_t k = q * chunk; k < (q + 1) * chunk && owner_of(q, count_) == i; ++k) {
          double sum = 0;
          for (const auto& values : all)
            sum += values[k];
          sums[k] = static_cast<float>(sum);
        }
      put(ranks_[i].key_gradient.get(), bytes_in(DeviceBuffer(sums, dtype).get()));
    }
  }

  Layout layout_;
  int count_;
  std::deque<Rank> ranks_;
};

class Context : public ::testing::TestWithParam<Divided> {};

// Shapes: layers, H, heads, key/value heads, F, V, S, B. S is a multiple of 2, 4, 6, 8 or 10.
const test::ModelCase grouped = {"grouped", {3, 48, 6, 2, 33, 101, 60, 2}, 2, 3};
const test::ModelCase three = {"three", {2, 40, 4, 1, 31, 53, 168, 3}, 1, 1};

INSTANTIATE_TEST_SUITE_P(All,
    Context,
    ::testing::Values(Divided{grouped, 2, Recompute::none, Dtype::fp32, false, true},
        Divided{grouped, 3, Recompute::block, Dtype::bf16, true, false},
        Divided{grouped, 5, Recompute::keep_attention, Dtype::bf16, false, true},
        Divided{grouped, 5, Recompute::block, Dtype::fp32, true, true},
        Divided{three, 2, Recompute::block, Dtype::bf16, false, true},
        Divided{three, 3, Recompute::keep_attention, Dtype::fp32, true, false},
        Divided{three, 3, Recompute::none, Dtype::bf16, true, true},
        Divided{three, 4, Recompute::none, Dtype::fp32, false, false}),
    test::divided_name);

TEST_P(Context, RanksTogetherComputeTheStepOfOne) {
  const auto& [model_case, count, recompute, dtype, fp32_keys, halves] = GetParam();
  Layout layout = test::layout_of(model_case, dtype, recompute);
  layout.shape.fp32_key_gradients = fp32_keys;
  layout.shape.key_parts = fp32_keys ? layout.shape.kv_heads : 1;

  ContextGroup group(layout, count);
  for (int m = 0; m < micro_batches; ++m) {
    group.forward(m);
    group.backward(m, halves);
  }
  for (int m = 0; m < micro_batches && halves; ++m)
    group.weights(m);

  const bool fp32 = dtype == Dtype::fp32;
  test::expect_first_step(
      layout, group.loss(), group.totals(), fp32 ? 1e-6 : 2e-4, fp32 ? 1e-5 : 1.5e-2);
}

TEST(Runs, AreAHeadAndATailOfEqualWork) {
  for (const int count : {2, 3, 5}) {
    Shape shape = grouped.shape;
    shape.seq = 30 * count;
    std::int64_t tokens = 0;
    for (int i = 0; i < count; ++i) {
      shape.context = {i, count};
      std::int64_t pairs = 0, rows = 0;
      for (const SequenceRun& run : runs_of(shape)) {
        EXPECT_EQ(run.row, rows);
        rows += run.count;
        for (std::int64_t p = run.position; p < run.position + run.count; ++p)
          pairs += p + 1;
      }
      EXPECT_EQ(rows, shape.local_seq());
      EXPECT_EQ(2 * count * pairs, shape.seq * (shape.seq + 1));
      tokens += rows;
    }
    EXPECT_EQ(tokens, shape.seq);
  }
}

TEST(Runs, MustDivideTheSequence) {
  Shape shape = grouped.shape;
  shape.context = {0, 5};
  shape.seq = 25;
  EXPECT_THROW(check(shape), InputError);
  shape.seq = 30;
  EXPECT_NO_THROW(check(shape));
}
}  // namespace
}  // namespace minitaw::model
