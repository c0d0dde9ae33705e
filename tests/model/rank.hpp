// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <deque>
#include "kernels/device_matrix.hpp"
#include "model/model.hpp"

namespace minitaw::test {
using model::Buffer, model::Direction, model::Dtype, model::Layout, model::ShardPass;

/// Device memory of a size, full of NaN, and its values on the host.
class DeviceBuffer {
public:
  explicit DeviceBuffer(std::size_t bytes)
      : bytes_(Kokkos::view_alloc("test buffer", Kokkos::WithoutInitializing), bytes) {
    poison();
  }

  DeviceBuffer(const auto& values, Dtype dtype)
      : DeviceBuffer(values.size() * model::bytes_of(dtype)) {
    assign(values, dtype);
  }

  [[nodiscard]] Buffer get() const {
    return bytes_.size() == 0 ? Buffer() : Buffer{bytes_.data(), bytes_.size()};
  }

  void poison() const { Kokkos::deep_copy(bytes_, std::byte{0xFF}); }

  void assign(const auto& values, Dtype dtype) const {
    model::with_element(dtype, [&]<class E>(E) {
      const auto host = Kokkos::create_mirror_view(all<E>());
      for (std::size_t i = 0; i < host.size(); ++i)
        host(i) = from_float<E>(static_cast<float>(values[i]));
      Kokkos::deep_copy(all<E>(), host);
    });
  }

  [[nodiscard]] Doubles values(Dtype dtype) const {
    Doubles result;
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

using Buffers = std::vector<DeviceBuffer>;

/// A micro-batch, or a slice of one.
struct Turn {
  explicit Turn(const Layout& layout, const model::Shape& shape)
      : batch(shape),
        hidden(hidden_bytes(shape)) {
    for (const model::Shard& shard : layout.shards) {
      saved.emplace_back(shard.layers * plan_saved(shape).bytes);
      deferred.emplace_back(shard.layers * plan_deferred(shape).bytes);
    }
  }

  model::MicroBatch batch;
  DeviceBuffer hidden;
  Buffers saved, deferred;  ///< of each shard
};

/// A rank that computes everything, in buffers of just the planned sizes. Embeddings are the last
/// part of the model.
struct Rank {
  Rank(const Layout& whole,
      int index,
      int micro_batches,
      std::uint64_t seed,
      kernels::Attention attention = kernels::Attention::automatic,
      const model::ExecutionSpace& space = {})
      : layout(of_member(whole, index)),
        exec(space),
        workspace(model::plan_workspace(layout).bytes),
        gathered{of_keys(shape.shares_sequences() * gathered_elements(largest_slice(shape)))},
        tokens(shape, "synthetic", seed),
        model(exec,
            layout,
            1.0 / static_cast<double>(shape.seq * shape.micro_batch * micro_batches),
            workspace.get(),
            attention) {
    for (int n = 0; n < micro_batches * shape.slices; ++n)
      turns.emplace_back(layout, layout.shape_of(n));
    for (const model::Shard& shard : layout.shards)
      prefix.push_back(of_keys(shape.has_slices() * shard.layers * prefix_elements(shape)));
    for (const model::Flat* part : layout.parts()) {
      std::vector<float> initial(part->elements);
      model::initialise(initial, *part, shape, seed);
      weights.emplace_back(initial, shape.dtype);
      totals.emplace_back(part->elements * sizeof(float));
      contributions.emplace_back(part->elements * bytes_of(shape.dtype));
      const std::int64_t owned =
          part == &layout.embeddings ? layout.embeddings.part : part->elements;
      for (auto begin = initial.begin(); begin != initial.end(); begin += owned)
        states.push_back(optimiser({begin, begin + owned}));
    }
  }

  /// Keys and values of all ranks for the sequences that a shape is about.
  static std::int64_t gathered_elements(const model::Shape& of) {
    return of.span_seq() * of.micro_batch * of.key_values();
  }

  [[nodiscard]] model::EndBuffers ends(int turn, bool accumulate) const {
    return {.weights = weights.back().get(),
        .hidden = turns[turn].hidden.get(),
        .gradient = totals.back().get(),
        .accumulate = accumulate,
        .slice = turn % shape.slices};
  }

  /// What the pass does not need is empty.
  [[nodiscard]] model::PassBuffers buffers(
      const ShardPass& pass, int turn, const model::Gradient& gradient) const {
    const int s = pass.shard;
    model::PassBuffers all{.saved = turns[turn].saved[s].get()};
    if (pass.is_half())
      all.deferred = turns[turn].deferred[s].get();
    if (pass.towards_weights())
      all.gradient = gradient;
    if (pass.towards_input()) {
      all.weights = weights[s].get();
      all.hidden = turns[turn].hidden.get();
      all.of_ranks = {gathered[0].get(), gathered[1].get()};
      all.of_slices = {prefix[s][0].get(), prefix[s][1].get()};
    }
    return all;
  }

  /// By contributions: a gradient in the compute type first, then added.
  void run(const ShardPass& pass, int turn, bool by_contributions) {
    const int s = pass.shard;
    const bool accumulate = turn != shape.slices - 1;  // the last slice comes back first
    const Buffer total = totals[s].get(), contribution = contributions[s].get();
    if (!by_contributions || !pass.towards_weights())
      return model.run(pass, buffers(pass, turn, {.buffer = total, .accumulate = accumulate}));
    model.run(pass, buffers(pass, turn, {contribution, shape.dtype}));
    const std::int64_t count = layout.shards[s].elements;
    model::with_element(shape.dtype, [&]<class E>(E) {
      kernels::add<E>(exec,
          model::elements_of<float>(total, 0, count),
          model::elements_of<E>(contribution, 0, count),
          accumulate);
    });
  }

  Layout layout;
  const model::Shape& shape = layout.shape;
  model::ExecutionSpace exec;
  DeviceBuffer workspace;
  std::array<DeviceBuffer, 2> gathered;  ///< keys of a block, and their gradients
  model::TokenSource tokens;
  model::Model model;
  Kokkos::View<double, kernels::MemorySpace> loss{"loss"};
  std::deque<Turn> turns;
  std::vector<std::array<DeviceBuffer, 2>> prefix;  ///< keys of each shard's slices, gradients
  Buffers weights, totals, contributions;           ///< of each part
  Buffers states;  ///< of each shard and each part of the embeddings

private:
  static Layout of_member(Layout layout, int index) {
    layout.shape.context.index = index;
    for (model::Shape& slice : layout.slices)
      slice.context.index = index;
    return layout;
  }

  [[nodiscard]] std::array<DeviceBuffer, 2> of_keys(std::int64_t elements) const {
    return {DeviceBuffer(elements * bytes_of(shape.dtype)),
        DeviceBuffer(elements * bytes_of(shape.key_gradient_dtype()))};
  }

  /// Moments, and the master weights unless the weights are their own master.
  [[nodiscard]] DeviceBuffer optimiser(const std::vector<float>& initial) const {
    std::vector<float> values(2 * initial.size(), 0.0F);
    if (shape.dtype != Dtype::fp32)
      values.insert(values.end(), initial.begin(), initial.end());
    return {values, Dtype::fp32};
  }
};
}  // namespace minitaw::test
