// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <numeric>
#include "model/rank.hpp"
#include "model/reference.hpp"

namespace minitaw::test {
using model::ReferenceTensors, model::Segment;

/// Executes whole steps on all ranks of a context group, mostly one. What passes between ranks it
/// copies and adds up itself.
class TrainingLoop {
public:
  TrainingLoop(const Layout& layout, int micro_batches, const auto&... more)
      : micro_batches_(micro_batches) {
    for (int i = 0; i < layout.shape.context.count; ++i)
      ranks_.emplace_back(layout, i, micro_batches, more...);
  }

  bool by_contributions = false;

  /// Gradient of step `step` (from 0); returns the loss.
  double gradient(int step) {
    prepare(step);
    execute();
    return loss();
  }

  /// The same with the pass towards the weights put off, scratch and weights gone in between. Once
  /// only.
  double gradient_apart(int step) {
    prepare(step);
    execute(Direction::backward_input);
    for (const Rank& r : ranks_) {
      r.workspace.poison();
      for (const DeviceBuffer& weights : r.weights)
        weights.poison();
    }
    execute_towards_weights();
    return loss();
  }

  /// What a step needs beforehand: its tokens. Gradients are poisoned: the first turn writes them.
  void prepare(int step) {
    for (Rank& r : ranks_) {
      r.exec.fence();  // the step before must have read its tokens
      for (std::size_t n = 0; n < r.turns.size(); ++n)
        r.turns[n].batch.fill(r.tokens, step, n / r.shape.slices * r.shape.micro_batch);
      for (const DeviceBuffer& total : r.totals)
        total.poison();
      Kokkos::deep_copy(r.loss, 0.0);
    }
  }

  /// Forward and backward of all micro-batches, slices in order and back; of one rank asynchronous.
  void execute(Direction back = Direction::backward) {
    for (int m = 0; m < micro_batches_; ++m) {
      for (int n = m * slices(); n < (m + 1) * slices(); ++n) {
        each([&](Rank& r) { r.model.embed(r.ends(n, false), r.turns[n].batch); });
        for (int s = 0; s < shards(); ++s)
          forward({.shard = s, .slice = n % slices()}, n);
        each([&](Rank& r) { r.model.loss(r.ends(n, n > 0), r.loss.data(), r.turns[n].batch); });
      }
      back_through(m, [&](int n) {
        for (int s = shards() - 1; s >= 0; --s)
          backward({back, s, n % slices()}, n);
        each([&](Rank& r) {
          const bool adds = n != slices() - 1 || r.shape.tied;  // to that of the head
          r.model.embed_backward(r.ends(n, adds), r.turns[n].batch);
        });
      });
    }
  }

  void execute_towards_weights() {
    for (int m = 0; m < micro_batches_; ++m)
      back_through(m, [&](int n) {
        for (int s = 0; s < shards(); ++s)
          run({Direction::backward_weight, s, n % slices()}, Segment::all, n);
      });
  }

  /// Asynchronous; of the first rank.
  void update(const model::AdamW& adamw, int step) {
    Rank& r = ranks_[0];
    for (int i = 0; i < static_cast<int>(r.states.size()); ++i) {
      const std::size_t part = std::min(i, shards());
      const model::UpdateBuffers buffers{
          r.weights[part].get(), r.totals[part].get(), r.states[i].get()};
      if (i < shards())
        r.model.update(i, {}, buffers, adamw, step);
      else
        r.model.update_embeddings(i - shards(), buffers, adamw, step);
    }
  }

  [[nodiscard]] const model::Model& model() const { return ranks_[0].model; }

  /// Of all ranks together.
  [[nodiscard]] ReferenceTensors totals() const {
    ReferenceTensors sum = reference_zeros(layout());
    for (const Rank& r : ranks_)
      for (std::size_t p = 0; p < sum.size(); ++p)
        sum[p] = sum_of(sum[p], r.totals[p].values(Dtype::fp32));
    return sum;
  }

  /// As the kernels read them.
  [[nodiscard]] ReferenceTensors weights() const {
    return list_of(ranks_[0].weights,
        [&](const DeviceBuffer& part) { return part.values(layout().shape.dtype); });
  }

  /// As the optimiser keeps them.
  [[nodiscard]] ReferenceTensors master() const {
    if (layout().shape.dtype == Dtype::fp32)
      return weights();
    ReferenceTensors result(shards() + 1);
    for (int i = 0; const DeviceBuffer& state : ranks_[0].states) {
      const Doubles all = state.values(Dtype::fp32);
      Doubles& part = result[std::min(i++, shards())];
      part.insert(part.end(), all.end() - std::ssize(all) / 3, all.end());
    }
    return result;
  }

private:
  [[nodiscard]] const Layout& layout() const { return ranks_[0].layout; }

  [[nodiscard]] int shards() const { return static_cast<int>(layout().shards.size()); }

  [[nodiscard]] int slices() const { return layout().shape.slices; }

  [[nodiscard]] double loss() const {
    double sum = 0;
    for (const Rank& r : ranks_) {
      double part = 0;
      Kokkos::deep_copy(part, r.loss);
      sum += part;
    }
    return sum;
  }

  void each(const auto& execute) {
    for (Rank& r : ranks_)
      execute(r);
  }

  void back_through(int m, const auto& turn) const {
    for (int n = (m + 1) * slices() - 1; n >= m * slices(); --n)
      turn(n);
  }

  void run(ShardPass pass, Segment segment, int turn) {
    pass.segment = segment;
    each([&](Rank& r) { r.run(pass, turn, by_contributions); });
  }

  void forward(ShardPass pass, int turn) {
    if (ranks_.size() == 1)
      return run(pass, Segment::all, turn);
    for (; pass.block < layout().shards[pass.shard].layers; ++pass.block) {
      pass.heads = {};
      run(pass, Segment::keys, turn);
      gather(turn);
      pass.heads.count = layout().shape.key_parts;
      for (; pass.heads.index != pass.heads.count; ++pass.heads.index) {
        if (slices() > 1)
          run(pass, Segment::extend, turn);
        run(pass, Segment::attend, turn);
      }
    }
  }

  /// The keys of a block are there before the block after it has finished.
  void backward(ShardPass pass, int turn) {
    if (ranks_.size() == 1)
      return run(pass, Segment::all, turn);
    pass.block = layout().shards[pass.shard].layers - 1;
    run(pass, Segment::keys, turn);
    for (; pass.block >= 0; --pass.block) {
      if (slices() == 1)
        gather(turn);
      run(pass, Segment::attend, turn);
      if (slices() > 1)
        run(pass, Segment::share, turn);
      if (pass.towards_weights())
        run(pass, Segment::weights, turn);
      if (ShardPass before = pass; before.block-- > 0)
        run(before, Segment::keys, turn);
      scatter_sums(turn);
      run(pass, Segment::finish, turn);
    }
  }

  /// The rank that has an element of gathered keys or gradients. In each part of the heads, chunks
  /// of all heads of a sequence come first, then the tails back.
  [[nodiscard]] int owner_of(std::int64_t element, int turn) const {
    const int chunks = 2 * static_cast<int>(ranks_.size());
    const std::int64_t in_chunk =
        Rank::gathered_elements(layout().shape_of(turn)) / chunks / layout().shape.key_parts;
    const int chunk = static_cast<int>(element / in_chunk % chunks);
    return std::min(chunk, chunks - 1 - chunk);
  }

  [[nodiscard]] std::vector<Doubles> gathered(int which, Dtype dtype) const {
    return list_of(ranks_, [&](const Rank& r) { return r.gathered[which].values(dtype); });
  }

  /// Every rank gets every chunk of keys and values from its owner.
  void gather(int turn) {
    const Dtype dtype = layout().shape.dtype;
    const std::vector<Doubles> all = gathered(0, dtype);
    Doubles whole = all[0];
    for (std::size_t i = 0; i < whole.size(); ++i)
      whole[i] = all[owner_of(i, turn)][i];
    each([&](Rank& r) { r.gathered[0].assign(whole, dtype); });
  }

  /// The owner of each chunk gets the sum of its gradients; the others lose it.
  void scatter_sums(int turn) {
    const Dtype dtype = layout().shape.key_gradient_dtype();
    const std::vector<Doubles> all = gathered(1, dtype);
    const Doubles sums = std::accumulate(all.begin() + 1, all.end(), all[0], sum_of);
    for (int rank = 0; rank < std::ssize(all); ++rank) {
      Doubles own = sums;
      for (std::size_t i = 0; i < own.size(); ++i)
        if (owner_of(i, turn) != rank)
          own[i] = nan;
      ranks_[rank].gathered[1].assign(own, dtype);
    }
  }

  int micro_batches_;
  std::deque<Rank> ranks_;
};
}  // namespace minitaw::test
