#pragma once

#include <Kokkos_Core.hpp>
#include <vector>

#include "model/footprint.hpp"
#include "model/model.hpp"
#include "model/reference.hpp"
#include "model/tokens.hpp"

namespace minitaw::test {

/// Device memory of a size, full of NaN, and its values on the host.
class DeviceBuffer {
public:
  explicit DeviceBuffer(std::size_t bytes)
      : bytes_(Kokkos::view_alloc("test buffer", Kokkos::WithoutInitializing), bytes) {
    Kokkos::deep_copy(bytes_, std::byte{0xFF});
  }
  explicit DeviceBuffer(const std::vector<float>& values) : DeviceBuffer(values.size() * sizeof(float)) {
    Kokkos::deep_copy(floats(), Host(const_cast<float*>(values.data()), values.size()));
  }

  [[nodiscard]] model::Buffer get() const { return {bytes_.data(), bytes_.size()}; }
  [[nodiscard]] std::vector<double> values() const {
    std::vector<float> narrow(bytes_.size() / sizeof(float));
    Kokkos::deep_copy(Host(narrow.data(), narrow.size()), floats());
    return {narrow.begin(), narrow.end()};
  }

private:
  using Host = Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  using Device = Kokkos::View<float*, kernels::MemorySpace, Kokkos::MemoryUnmanaged>;
  [[nodiscard]] Device floats() const {
    return Device(reinterpret_cast<float*>(bytes_.data()), bytes_.size() / sizeof(float));
  }
  Kokkos::View<std::byte*, kernels::MemorySpace> bytes_;
};

/// Plays whole steps through model::Model on one rank, with every buffer poisoned and of exactly the planned
/// size.
class Trainer {
public:
  Trainer(const model::Layout& layout, int micro_batches, std::uint64_t seed,
          kernels::Attention attention = kernels::Attention::automatic, model::ExecutionSpace exec = {})
      : layout_(layout), micro_batches_(micro_batches), exec_(exec),
        workspace_(model::workspace_bytes(layout)), x_(model::flow_bytes(layout.shape)),
        tokens_(layout.shape, "synthetic", seed), batch_(layout.shape),
        model_(exec, layout, 1.0 / static_cast<double>(layout.shape.tokens() * micro_batches),
               workspace_.get(), attention),
        ends_(initial(layout.ends, seed)), ends_total_(zeros(layout.ends.elements)) {
    for (const model::Shard& shard : layout.shards) {
      weights_.emplace_back(initial(shard, seed));
      totals_.emplace_back(shard.elements * sizeof(float));
      kept_.emplace_back(model::kept_bytes(layout, static_cast<int>(kept_.size())));
      states_.emplace_back(zeros(2 * shard.elements));
    }
    const auto slices = layout.ends.elements / layout.ends.slice;
    for (std::int64_t s = 0; s < slices; ++s) ends_states_.emplace_back(zeros(2 * layout.ends.slice));
  }

  /// Gradient of step `step` (from 0); returns the loss.
  double gradient(int step) {
    ends_total_ = DeviceBuffer(zeros(layout_.ends.elements));
    const Kokkos::View<double*, kernels::MemorySpace> loss("loss", 1);
    for (int m = 0; m < micro_batches_; ++m) micro_batch(step, m, loss.data());
    exec_.fence();
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), loss)(0);
  }
  void update(const model::AdamW& adamw, int step) {
    for (std::size_t s = 0; s < weights_.size(); ++s)
      model_.update(static_cast<int>(s), weights_[s].get(), state(states_[s], layout_.shards[s].elements),
                    totals_[s].get(), adamw, step);
    for (std::size_t s = 0; s < ends_states_.size(); ++s)
      model_.update_ends(static_cast<int>(s), ends_.get(), state(ends_states_[s], layout_.ends.slice),
                         ends_total_.get(), adamw, step);
    exec_.fence();
  }

  [[nodiscard]] model::ReferenceTensors totals() const { return collect(totals_, ends_total_); }
  [[nodiscard]] model::ReferenceTensors weights() const { return collect(weights_, ends_); }

private:
  template <class Part>
  std::vector<float> initial(const Part& part, std::uint64_t seed) const {
    std::vector<float> values(part.elements);
    model::initialise(values, part, layout_.shape, seed);
    return values;
  }
  static std::vector<float> zeros(std::int64_t count) { return std::vector<float>(count, 0.0F); }
  model::OptimiserState state(const DeviceBuffer& buffer, std::int64_t elements) const {
    return model::optimiser_state(buffer.get(), layout_.shape.dtype, elements);
  }

  void micro_batch(int step, int m, double* loss) {
    exec_.fence();  // the micro-batch before must have read its tokens
    batch_.fill(tokens_, step, m);
    const int shards = static_cast<int>(weights_.size());
    model_.embed(x_.get(), ends_.get(), batch_);
    for (int s = 0; s < shards; ++s) model_.forward(s, x_.get(), kept_[s].get(), weights_[s].get());
    model_.loss(x_.get(), ends_total_.get(), loss, ends_.get(), batch_);
    for (int s = shards - 1; s >= 0; --s)
      model_.backward(s, x_.get(), totals_[s].get(), m > 0, kept_[s].get(), weights_[s].get());
    model_.embed_backward(ends_total_.get(), x_.get(), batch_);
  }
  static model::ReferenceTensors collect(const std::vector<DeviceBuffer>& shards, const DeviceBuffer& ends) {
    model::ReferenceTensors result;
    for (const DeviceBuffer& shard : shards) result.shards.push_back(shard.values());
    result.ends = ends.values();
    return result;
  }

  const model::Layout layout_;
  int micro_batches_;
  model::ExecutionSpace exec_;
  DeviceBuffer workspace_, x_;
  model::TokenSource tokens_;
  model::MicroBatch batch_;
  model::Model model_;
  DeviceBuffer ends_, ends_total_;
  std::vector<DeviceBuffer> weights_, totals_, kept_, states_, ends_states_;
};

}  // namespace minitaw::test
