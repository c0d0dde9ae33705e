#pragma once

#include <Kokkos_Core.hpp>
#include <vector>

#include "base/bf16.hpp"
#include "kernels/kernels.hpp"
#include "model/data.hpp"
#include "model/model.hpp"
#include "model/plan.hpp"
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
    std::vector<Bf16> rounded;
    for (const float value : values) rounded.push_back(to_bf16(value));
    if (dtype == model::Dtype::fp32) store(values);
    else store(rounded);
  }

  [[nodiscard]] model::Buffer get() const { return {bytes_.data(), bytes_.size()}; }
  void fill(std::byte value) const { Kokkos::deep_copy(bytes_, value); }
  [[nodiscard]] std::vector<double> values(model::Dtype dtype) const {
    std::vector<double> result;
    if (dtype == model::Dtype::fp32)
      for (const float value : load<float>()) result.push_back(value);
    else
      for (const Bf16 value : load<Bf16>()) result.push_back(to_float(value));
    return result;
  }

private:
  template <class T>
  using Host = Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  template <class T>
  [[nodiscard]] kernels::Vector<T> all() const {
    return kernels::Vector<T>(get().as<T>(), bytes_.size() / sizeof(T));
  }
  template <class T>
  void store(const std::vector<T>& values) {
    Kokkos::deep_copy(all<T>(), Host<const T>(values.data(), values.size()));
  }
  template <class T>
  [[nodiscard]] std::vector<T> load() const {
    std::vector<T> values(bytes_.size() / sizeof(T));
    Kokkos::deep_copy(Host<T>(values.data(), values.size()), all<T>());
    return values;
  }
  Kokkos::View<std::byte*, kernels::MemorySpace> bytes_;
};

/// Executes whole steps through model::Model on one rank, with every buffer poisoned and of exactly the
/// planned size.
class Trainer {
public:
  Trainer(const model::Layout& layout, int micro_batches, std::uint64_t seed,
          kernels::Attention attention = kernels::Attention::automatic, model::ExecutionSpace exec = {})
      : layout_(layout), exec_(exec), workspace_(model::workspace_bytes(layout)),
        x_(model::hidden_bytes(layout.shape)), tokens_(layout.shape, "synthetic", seed),
        model_(exec, layout, 1.0 / static_cast<double>(layout.shape.tokens() * micro_batches),
               workspace_.get(), attention),
        ends_(initial(layout.embeddings, seed), layout.shape.dtype),
        embeddings_accumulator_(layout.embeddings.elements * sizeof(float)) {
    for (int m = 0; m < micro_batches; ++m) batches_.emplace_back(layout.shape);
    for (const model::Shard& shard : layout.shards) {
      const std::vector<float> weights = initial(shard, seed);
      weights_.emplace_back(weights, layout.shape.dtype);
      totals_.emplace_back(shard.elements * sizeof(float));
      contributions_.emplace_back(shard.elements * model::bytes_of(layout.shape.dtype));
      saved_.emplace_back(model::saved_bytes(layout, static_cast<int>(saved_.size())));
      states_.push_back(optimiser(weights));
    }
    std::vector<float> embeddings = initial(layout.embeddings, seed);
    for (auto slice = embeddings.begin(); slice != embeddings.end(); slice += layout.embeddings.slice)
      embeddings_states_.push_back(optimiser({slice, slice + layout.embeddings.slice}));
  }

  /// Gradient of step `step` (from 0); returns the loss.
  double gradient(int step) {
    prepare(step);
    execute();
    double loss = 0;
    Kokkos::deep_copy(loss, loss_);
    return loss;
  }
  /// The same with every micro-batch's gradient written in the compute type first, then added to the total.
  double gradient_by_contributions(int step) {
    prepare(step);
    for (std::size_t m = 0; m < batches_.size(); ++m) micro_batch(m, true);
    double loss = 0;
    Kokkos::deep_copy(loss, loss_);
    return loss;
  }
  /// The same with the backward pass towards the weights put off: first that towards the inputs of all
  /// micro-batches; scratch is poisoned and the weights are gone in between. Keeps the buffers: once only.
  double gradient_apart(int step, bool by_contributions) {
    prepare(step);
    for (std::size_t m = 0; m < batches_.size(); ++m) backward_input_of(m);
    workspace_.fill(std::byte{0xFF});
    for (const DeviceBuffer& weights : weights_) weights.fill(std::byte{0xFF});
    for (std::size_t m = 0; m < batches_.size(); ++m)
      for (std::size_t s = 0; s < weights_.size(); ++s) backward_weight_of(m, s, by_contributions);
    double loss = 0;
    Kokkos::deep_copy(loss, loss_);
    return loss;
  }

  /// What a step needs beforehand: its tokens. Gradients are poisoned: the first micro-batch writes them.
  void prepare(int step) {
    exec_.fence();  // the step before must have read its tokens
    for (std::size_t m = 0; m < batches_.size(); ++m)
      batches_[m].fill(tokens_, step, static_cast<std::int64_t>(m) * layout_.shape.micro_batch);
    embeddings_accumulator_.fill(std::byte{0xFF});
    for (const DeviceBuffer& total : totals_) total.fill(std::byte{0xFF});
    Kokkos::deep_copy(loss_, 0.0);
  }
  /// Forward and backward of all micro-batches; asynchronous.
  void execute() {
    for (std::size_t m = 0; m < batches_.size(); ++m) micro_batch(m, false);
  }
  /// Asynchronous.
  void update(const model::AdamW& adamw, int step) {
    for (std::size_t s = 0; s < weights_.size(); ++s)
      model_.update(static_cast<int>(s), weights_[s].get(), state(states_[s], layout_.shards[s].elements),
                    totals_[s].get(), adamw, step);
    for (std::size_t s = 0; s < embeddings_states_.size(); ++s)
      model_.update_embeddings(static_cast<int>(s), ends_.get(),
                               state(embeddings_states_[s], layout_.embeddings.slice),
                               embeddings_accumulator_.get(), adamw, step);
  }

  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] model::ReferenceTensors totals() const {
    model::ReferenceTensors result;
    for (const DeviceBuffer& total : totals_) result.shards.push_back(total.values(model::Dtype::fp32));
    result.embeddings = embeddings_accumulator_.values(model::Dtype::fp32);
    return result;
  }
  /// As the kernels read them.
  [[nodiscard]] model::ReferenceTensors weights() const {
    model::ReferenceTensors result;
    for (const DeviceBuffer& weights : weights_) result.shards.push_back(weights.values(layout_.shape.dtype));
    result.embeddings = ends_.values(layout_.shape.dtype);
    return result;
  }
  /// As the optimiser keeps them.
  [[nodiscard]] model::ReferenceTensors master() const {
    if (layout_.shape.dtype == model::Dtype::fp32) return weights();
    const auto last_third = [](const DeviceBuffer& buffer) {
      std::vector<double> all = buffer.values(model::Dtype::fp32);
      all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(all.size() / 3));
      return all;
    };
    model::ReferenceTensors result;
    for (const DeviceBuffer& state : states_) result.shards.push_back(last_third(state));
    for (const DeviceBuffer& state : embeddings_states_)
      for (const double value : last_third(state)) result.embeddings.push_back(value);
    return result;
  }

private:
  template <class Part>
  std::vector<float> initial(const Part& part, std::uint64_t seed) const {
    std::vector<float> values(part.elements);
    model::initialise(values, part, layout_.shape, seed);
    return values;
  }
  /// Moments, and the master weights unless the weights are their own master.
  [[nodiscard]] DeviceBuffer optimiser(const std::vector<float>& weights) const {
    std::vector<float> values(2 * weights.size(), 0.0F);
    if (layout_.shape.dtype != model::Dtype::fp32)
      values.insert(values.end(), weights.begin(), weights.end());
    return {values, model::Dtype::fp32};
  }
  [[nodiscard]] model::OptimiserState state(const DeviceBuffer& buffer, std::int64_t elements) const {
    return model::optimiser_state(buffer.get(), layout_.shape.dtype, elements);
  }

  void micro_batch(std::size_t m, bool contribute) {
    const model::MicroBatch& batch = batches_[m];
    const int shards = static_cast<int>(weights_.size());
    model_.embed(x_.get(), ends_.get(), batch);
    for (int s = 0; s < shards; ++s) model_.forward(s, x_.get(), saved_[s].get(), weights_[s].get());
    model_.loss(x_.get(), embeddings_accumulator_.get(), m > 0, loss_.data(), ends_.get(), batch);
    for (int s = shards - 1; s >= 0; --s) {
      if (contribute) backward_and_add(s, m > 0);
      else backward(s, totals_[s], model::Dtype::fp32, m > 0);
    }
    model_.embed_backward(embeddings_accumulator_.get(), m > 0, x_.get(), batch);
  }
  /// Towards the input only, with kept and deferred activations of its own.
  void backward_input_of(std::size_t m) {
    apart_.emplace_back();
    for (std::size_t s = 0; s < weights_.size(); ++s) {
      apart_.back().saved.emplace_back(model::saved_bytes(layout_, static_cast<int>(s)));
      apart_.back().deferred.emplace_back(model::deferred_bytes(layout_, static_cast<int>(s)));
    }
    const auto& [saved, deferred] = apart_.back();
    const model::MicroBatch& batch = batches_[m];
    const int shards = static_cast<int>(weights_.size());
    model_.embed(x_.get(), ends_.get(), batch);
    for (int s = 0; s < shards; ++s) model_.forward(s, x_.get(), saved[s].get(), weights_[s].get());
    model_.loss(x_.get(), embeddings_accumulator_.get(), m > 0, loss_.data(), ends_.get(), batch);
    for (int s = shards - 1; s >= 0; --s)
      model_.backward_input(s, x_.get(), saved[s].get(), deferred[s].get(), weights_[s].get());
    model_.embed_backward(embeddings_accumulator_.get(), m > 0, x_.get(), batch);
  }
  void backward_weight_of(std::size_t m, std::size_t s, bool contribute) {
    const auto& [saved, deferred] = apart_[m];
    const DeviceBuffer& gradient = contribute ? contributions_[s] : totals_[s];
    const model::Dtype type = contribute ? layout_.shape.dtype : model::Dtype::fp32;
    model_.backward_weight(static_cast<int>(s), gradient.get(), type, !contribute && m > 0, saved[s].get(),
                           deferred[s].get());
    if (contribute) add_contribution(s, m > 0);
  }
  void backward(int s, const DeviceBuffer& gradient, model::Dtype type, bool accumulate) {
    model_.backward(s, x_.get(), gradient.get(), type, accumulate, saved_[s].get(), weights_[s].get());
  }
  void backward_and_add(int s, bool accumulate) {
    backward(s, contributions_[s], layout_.shape.dtype, false);
    add_contribution(static_cast<std::size_t>(s), accumulate);
  }
  void add_contribution(std::size_t s, bool accumulate) {
    const auto count = static_cast<std::size_t>(layout_.shards[s].elements);
    const kernels::Vector<float> total(totals_[s].get().as<float>(), count);
    const model::Buffer contribution = contributions_[s].get();
    if (layout_.shape.dtype == model::Dtype::fp32)
      kernels::add<float>(exec_, total, kernels::Vector<float>(contribution.as<float>(), count), accumulate);
    else kernels::add<Bf16>(exec_, total, kernels::Vector<Bf16>(contribution.as<Bf16>(), count), accumulate);
  }

  const model::Layout layout_;
  model::ExecutionSpace exec_;
  DeviceBuffer workspace_, x_;
  model::TokenSource tokens_;
  std::vector<model::MicroBatch> batches_;
  model::Model model_;
  Kokkos::View<double, kernels::MemorySpace> loss_{"loss"};
  DeviceBuffer ends_, embeddings_accumulator_;
  std::vector<DeviceBuffer> weights_, totals_, contributions_, saved_, states_, embeddings_states_;
  struct Apart {
    std::vector<DeviceBuffer> saved, deferred;  ///< of each shard
  };
  std::vector<Apart> apart_;  ///< of each micro-batch
};

}  // namespace minitaw::test
