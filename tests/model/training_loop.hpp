// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/device_matrix.hpp"
#include "model/model.hpp"
#include "model/reference.hpp"

namespace minitaw::test {
/// Device memory of a size, full of NaN, and its values on the host.
class DeviceBuffer {
public:
  explicit DeviceBuffer(std::size_t bytes)
      : bytes_(Kokkos::view_alloc("test buffer", Kokkos::WithoutInitializing), bytes) {
    fill(std::byte{0xFF});
  }

  DeviceBuffer(const std::vector<float>& values, model::Dtype dtype)
      : DeviceBuffer(values.size() * model::bytes_of(dtype)) {
    model::with_element(dtype, [&]<class E>(E) {
      const auto host = Kokkos::create_mirror_view(all<E>());
      for (std::size_t i = 0; i < values.size(); ++i)
        host(i) = from_float<E>(static_cast<float>(values[i]));
      Kokkos::deep_copy(all<E>(), host);
    });
  }

  [[nodiscard]] model::Buffer get() const { return {bytes_.data(), bytes_.size()}; }

  void fill(std::byte value) const { Kokkos::deep_copy(bytes_, value); }

  [[nodiscard]] std::vector<double> values(model::Dtype dtype) const {
    std::vector<double> result;
    model::with_element(dtype, [&]<class E>(E) {
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), all<E>());
      for (std::size_t i = 0; i < host.size(); ++i)
        result.push_back(to_float(host(i)));
    });
    return result;
  }

private:
  template <class E>
  [[nodiscard]] kernels::Vector<E> all() const {
    return kernels::Vector<E>(get().as<E>(), bytes_.size() / sizeof(E));
  }

  Kokkos::View<std::byte*, kernels::MemorySpace> bytes_;
};

/// Executes whole steps on one rank, every buffer poisoned and of just the planned size. Embeddings
/// are the last part.
class TrainingLoop {
  using Direction = model::Direction;

public:
  TrainingLoop(const model::Layout& layout,
      int micro_batches,
      std::uint64_t seed,
      kernels::Attention attention = kernels::Attention::automatic,
      model::ExecutionSpace exec = {})
      : layout_(layout),
        exec_(exec),
        workspace_(model::plan_workspace(layout).bytes),
        x_(model::hidden_bytes(layout.shape)),
        tokens_(layout.shape, "synthetic", seed),
        model_(exec,
            layout,
            1.0 / static_cast<double>(layout.shape.tokens() * micro_batches),
            workspace_.get(),
            attention) {
    for (int m = 0; m < micro_batches; ++m) {
      batches_.emplace_back(layout.shape);
      saved_.push_back(of_shards(model::plan_saved(layout.shape)));
      deferred_.push_back(of_shards(model::plan_deferred(layout.shape)));
    }
    for (const model::Flat* part : layout_.parts()) {
      std::vector<float> weights(part->elements);
      model::initialise(weights, *part, layout.shape, seed);
      weights_.emplace_back(weights, dtype());
      totals_.emplace_back(part->elements * sizeof(float));
      contributions_.emplace_back(part->elements * model::bytes_of(dtype()));
      const std::int64_t slice =
          part == &layout_.embeddings ? layout.embeddings.part : part->elements;
      for (auto begin = weights.begin(); begin != weights.end(); begin += slice)
        states_.push_back(optimiser({begin, begin + slice}));
    }
  }

  /// Gradient of step `step` (from 0); returns the loss. By contributions: in the compute type
  /// first, then added.
  double gradient(int step, bool by_contributions = false) {
    prepare(step);
    execute(by_contributions);
    return loss();
  }

  /// The same with the pass towards the weights put off, scratch and weights gone in between. Once
  /// only.
  double gradient_apart(int step, bool by_contributions) {
    prepare(step);
    execute_towards_inputs();
    workspace_.fill(std::byte{0xFF});
    for (const DeviceBuffer& weights : weights_)
      weights.fill(std::byte{0xFF});
    execute_towards_weights(by_contributions);
    return loss();
  }

  /// What a step needs beforehand: its tokens. Gradients are poisoned: the first micro-batch writes
  /// them.
  void prepare(int step) {
    exec_.fence();  // the step before must have read its tokens
    for (std::size_t m = 0; m < batches_.size(); ++m)
      batches_[m].fill(tokens_, step, static_cast<std::int64_t>(m) * layout_.shape.micro_batch);
    for (const DeviceBuffer& total : totals_)
      total.fill(std::byte{0xFF});
    Kokkos::deep_copy(loss_, 0.0);
  }

  /// Forward and backward of all micro-batches; asynchronous.
  void execute(bool by_contributions = false) {
    for (std::size_t m = 0; m < batches_.size(); ++m)
      micro_batch(m, [&](int s) {
        add_to_accumulator(s, m > 0, by_contributions, [&](const model::Gradient& gradient) {
          model_.run({.direction = Direction::backward, .shard = s},
              {.weights = weights_[s].get(),
                  .saved = saved_[m][s].get(),
                  .hidden = x_.get(),
                  .gradient = gradient});
        });
      });
  }

  /// The same in two halves.
  void execute_towards_inputs() {
    for (std::size_t m = 0; m < batches_.size(); ++m)
      micro_batch(m, [&](int s) {
        model_.run({.direction = Direction::backward_input, .shard = s},
            {.weights = weights_[s].get(),
                .saved = saved_[m][s].get(),
                .hidden = x_.get(),
                .deferred = deferred_[m][s].get()});
      });
  }

  void execute_towards_weights(bool by_contributions = false) {
    for (std::size_t m = 0; m < batches_.size(); ++m)
      for (int s = 0; s < shards(); ++s)
        add_to_accumulator(s, m > 0, by_contributions, [&](const model::Gradient& gradient) {
          model_.run({.direction = Direction::backward_weight, .shard = s},
              {.saved = saved_[m][s].get(),
                  .deferred = deferred_[m][s].get(),
                  .gradient = gradient});
        });
  }

  /// Asynchronous.
  void update(const model::AdamW& adamw, int step) {
    for (int i = 0; i < static_cast<int>(states_.size()); ++i)
      if (i < shards())
        model_.update(i, {}, {weights_[i].get(), totals_[i].get(), states_[i].get()}, adamw, step);
      else
        model_.update_embeddings(i - shards(),
            {weights_.back().get(), totals_.back().get(), states_[i].get()},
            adamw,
            step);
  }

  [[nodiscard]] const model::Model& model() const { return model_; }

  [[nodiscard]] model::ReferenceTensors totals() const {
    return values(totals_, model::Dtype::fp32);
  }

  /// As the kernels read them.
  [[nodiscard]] model::ReferenceTensors weights() const { return values(weights_, dtype()); }

  /// As the optimiser keeps them.
  [[nodiscard]] model::ReferenceTensors master() const {
    if (dtype() == model::Dtype::fp32)
      return weights();
    model::ReferenceTensors result(weights_.size());
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const std::vector<double> all = states_[i].values(model::Dtype::fp32);
      std::vector<double>& part = result[std::min(i, weights_.size() - 1)];
      part.insert(part.end(), all.end() - std::ssize(all) / 3, all.end());
    }
    return result;
  }

private:
  using Buffers = std::vector<DeviceBuffer>;

  [[nodiscard]] int shards() const { return static_cast<int>(layout_.shards.size()); }

  [[nodiscard]] model::Dtype dtype() const { return layout_.shape.dtype; }

  [[nodiscard]] Buffers of_shards(const model::BlockPlan& plan) const {
    Buffers buffers;
    for (const model::Shard& shard : layout_.shards)
      buffers.emplace_back(shard.layers * plan.bytes);
    return buffers;
  }

  static model::ReferenceTensors values(const Buffers& buffers, model::Dtype dtype) {
    model::ReferenceTensors result;
    for (const DeviceBuffer& buffer : buffers)
      result.push_back(buffer.values(dtype));
    return result;
  }

  [[nodiscard]] double loss() const {
    double loss = 0;
    Kokkos::deep_copy(loss, loss_);
    return loss;
  }

  /// Moments, and the master weights unless the weights are their own master.
  [[nodiscard]] DeviceBuffer optimiser(const std::vector<float>& weights) const {
    std::vector<float> values(2 * weights.size(), 0.0F);
    if (dtype() != model::Dtype::fp32)
      values.insert(values.end(), weights.begin(), weights.end());
    return {values, model::Dtype::fp32};
  }

  /// All but the gradients of shards, which backward(shard) is for.
  void micro_batch(std::size_t m, const auto& backward) {
    const model::MicroBatch& batch = batches_[m];
    const model::EndBuffers embeddings{.weights = weights_.back().get(),
        .hidden = x_.get(),
        .gradient = totals_.back().get(),
        .accumulate = m > 0};
    model_.embed(embeddings, batch);
    for (int s = 0; s < shards(); ++s)
      model_.run({.shard = s},
          {.weights = weights_[s].get(), .saved = saved_[m][s].get(), .hidden = x_.get()});
    model_.loss(embeddings, loss_.data(), batch);
    for (int s = shards() - 1; s >= 0; --s)
      backward(s);
    model_.embed_backward(embeddings, batch);
  }

  /// Calls write(the gradient).
  void add_to_accumulator(int s, bool accumulate, bool by_contributions, const auto& write) {
    if (!by_contributions)
      return write({.buffer = totals_[s].get(), .accumulate = accumulate});
    const model::Buffer contribution = contributions_[s].get();
    write({contribution, dtype()});
    const auto count = static_cast<std::size_t>(layout_.shards[s].elements);
    model::with_element(dtype(), [&]<class E>(E) {
      kernels::add<E>(exec_,
          kernels::Vector<float>(totals_[s].get().as<float>(), count),
          kernels::Vector<E>(contribution.as<E>(), count),
          accumulate);
    });
  }

  const model::Layout layout_;
  model::ExecutionSpace exec_;
  DeviceBuffer workspace_, x_;
  model::TokenSource tokens_;
  model::Model model_;
  Kokkos::View<double, kernels::MemorySpace> loss_{"loss"};
  std::vector<model::MicroBatch> batches_;
  std::vector<Buffers> saved_, deferred_;     ///< of each micro-batch and shard
  Buffers weights_, totals_, contributions_;  ///< of each part
  Buffers states_;                            ///< of each shard and each slice of the embeddings
};
}  // namespace minitaw::test
