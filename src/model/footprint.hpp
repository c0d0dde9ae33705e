#pragma once

#include <cstddef>

#include "model/layout.hpp"

namespace minitaw::model {

/// Bytes of the hidden state [B S, H] that flows from block to block (and of its gradient on the way back).
[[nodiscard]] std::size_t flow_bytes(const Shape& shape);

/// Bytes that the forward pass of a shard keeps for its backward pass, for one micro-batch.
[[nodiscard]] std::size_t kept_bytes(const Layout& layout, int shard);

/// Bytes that the backward pass of a shard towards its input leaves, beside the kept ones, for the one
/// towards its weights, for one micro-batch.
[[nodiscard]] std::size_t stash_bytes(const Layout& layout, int shard);

/// Bytes of scratch that the compute actions of one rank share, whichever shards it computes.
[[nodiscard]] std::size_t workspace_bytes(const Layout& layout);

/// Estimate of what libraries take on a device beside the arena: cuBLASLt's workspace (32 MiB), and for bf16
/// the workspace of cuDNN 9.19's backward attention, fp32 [T, h (d + 1)], and with grouped heads [T, h d]
/// more. The true size is measured when a case runs.
[[nodiscard]] std::size_t library_estimate(const Shape& shape);

/// Bytes of the optimiser's state for `elements` weights: two fp32 moments and, unless the weights are fp32
/// themselves, an fp32 master copy.
[[nodiscard]] std::size_t optimiser_bytes(Dtype dtype, std::int64_t elements);

}  // namespace minitaw::model
