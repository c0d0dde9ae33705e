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
      states_.push_back(optimiser(weights));
    }
    saved_ = of_shards(model::saved_bytes);
    std::vector<float> embeddings = initial(layout.embeddings, seed);
    for (auto slice = embeddings.begin(); slice != embeddings.end(); slice += layout.embeddings.slice)
      embeddings_states_.push_back(optimiser({slice, slice + layout.embeddings.slice}));
  }

  /// Gradient of step `step` (from 0); returns the loss. By contributions: every micro-batch's gradient is
  /// written in the compute type first, then added to the total.
  double gradient(int step, bool by_contributions = false) {
    prepare(step);
    execute(by_contributions);
    return loss();
  }
  /// The same with the backward pass towards the weights put off: first that towards the inputs of all
  /// micro-batches; scratch is poisoned and the weights are gone in between. Keeps the buffers: once only.
  double gradient_apart(int step, bool by_contributions) {
    prepare(step);
    std::vector<Buffers> saved, deferred;  // of each micro-batch
    for (std::size_t m = 0; m < batches_.size(); ++m) {
      saved.push_back(of_shards(model::saved_bytes));
      deferred.push_back(of_shards(model::deferred_bytes));
      micro_batch(m, saved[m], [&](int s) {
        model_.backward_input(s, x_.get(), saved[m][s].get(), deferred[m][s].get(), weights_[s].get());
      });
    }
    workspace_.fill(std::byte{0xFF});
    for (const DeviceBuffer& weights : weights_) weights.fill(std::byte{0xFF});
    for (std::size_t m = 0; m < batches_.size(); ++m)
      for (int s = 0; s < shards(); ++s)
        add_to_total(s, m > 0, by_contributions, [&](auto... gradient) {
          model_.backward_weight(s, gradient..., saved[m][s].get(), deferred[m][s].get());
        });
    return loss();
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
  void execute(bool by_contributions = false) {
    for (std::size_t m = 0; m < batches_.size(); ++m)
      micro_batch(m, saved_, [&](int s) {
        add_to_total(s, m > 0, by_contributions, [&](auto... gradient) {
          model_.backward(s, x_.get(), gradient..., saved_[s].get(), weights_[s].get());
        });
      });
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
  using Buffers = std::vector<DeviceBuffer>;  ///< of each shard
  [[nodiscard]] int shards() const { return static_cast<int>(layout_.shards.size()); }
  [[nodiscard]] Buffers of_shards(std::size_t (*bytes)(const model::Layout&, int)) const {
    Buffers buffers;
    for (int s = 0; s < shards(); ++s) buffers.emplace_back(bytes(layout_, s));
    return buffers;
  }
  [[nodiscard]] double loss() const {
    double loss = 0;
    Kokkos::deep_copy(loss, loss_);
    return loss;
  }
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

  /// All but the gradients of shards, which backward(shard) is for.
  template <class Backward>
  void micro_batch(std::size_t m, const Buffers& saved, const Backward& backward) {
    const model::MicroBatch& batch = batches_[m];
    model_.embed(x_.get(), ends_.get(), batch);
    for (int s = 0; s < shards(); ++s) model_.forward(s, x_.get(), saved[s].get(), weights_[s].get());
    model_.loss(x_.get(), embeddings_accumulator_.get(), m > 0, loss_.data(), ends_.get(), batch);
    for (int s = shards() - 1; s >= 0; --s) backward(s);
    model_.embed_backward(embeddings_accumulator_.get(), m > 0, x_.get(), batch);
  }
  /// write(gradient, its type, whether it is added to)
  template <class Write>
  void add_to_total(int s, bool accumulate, bool by_contributions, const Write& write) {
    const model::Dtype dtype = layout_.shape.dtype;
    if (!by_contributions) return write(totals_[s].get(), model::Dtype::fp32, accumulate);
    const model::Buffer contribution = contributions_[s].get();
    write(contribution, dtype, false);
    const auto count = static_cast<std::size_t>(layout_.shards[s].elements);
    model::with_element(dtype, [&]<class E>(E) {
      kernels::add<E>(exec_, kernels::Vector<float>(totals_[s].get().as<float>(), count),
                      kernels::Vector<E>(contribution.as<E>(), count), accumulate);
    });
  }

  const model::Layout layout_;
  model::ExecutionSpace exec_;
  DeviceBuffer workspace_, x_;
  model::TokenSource tokens_;
  std::vector<model::MicroBatch> batches_;
  model::Model model_;
  Kokkos::View<double, kernels::MemorySpace> loss_{"loss"};
  DeviceBuffer ends_, embeddings_accumulator_;
  Buffers weights_, totals_, contributions_, saved_, states_, embeddings_states_;
};

}  // namespace minitaw::test
