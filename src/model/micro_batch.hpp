#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <span>

#include "base/pinned_space.hpp"
#include "model/shape.hpp"
#include "model/tokens.hpp"

namespace minitaw::model {

/// Tokens of one micro-batch, T = B S, and what the embedding's gradient needs to know about their order; all
/// in pinned memory that is taken once. Filled outside of a step: kernels read it until their step is over.
class MicroBatch {
public:
  explicit MicroBatch(const Shape& shape);
  MicroBatch(MicroBatch&&) = default;
  MicroBatch& operator=(MicroBatch&&) = default;

  /// What `source` gives for this step (from 0) from sequence number `first` on.
  void fill(TokenSource& source, std::int64_t step, std::int64_t first);

  using Tokens = std::span<const std::int32_t>;
  [[nodiscard]] Tokens targets() const { return part(0, tokens_); }
  [[nodiscard]] Tokens inputs() const { return part(tokens_, tokens_); }
  /// Positions by input token, and where each distinct token begins: see token_index.hpp.
  [[nodiscard]] Tokens order() const { return part(2 * tokens_, tokens_); }
  [[nodiscard]] Tokens segments() const { return part(3 * tokens_, segments_); }
  /// inputs, order and segments, one behind another, so that one copy brings them to the device.
  [[nodiscard]] Tokens index() const { return part(tokens_, 2 * tokens_ + segments_); }

private:
  [[nodiscard]] std::span<std::int32_t> part(std::size_t begin, std::size_t count) const {
    return {memory_.data() + begin, count};
  }

  std::int64_t vocab_;
  std::size_t tokens_;
  std::size_t segments_ = 0;
  Kokkos::View<std::int32_t*, PinnedSpace> memory_;
};

}  // namespace minitaw::model
