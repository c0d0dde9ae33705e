// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <span>
#include "kernels/settings.hpp"
#include "model/layout.hpp"

namespace minitaw::model {
using kernels::AdamW;
/// A number for every weight of a model: a vector for each of its layout's parts().
using ReferenceTensors = std::vector<std::vector<double>>;
ReferenceTensors reference_zeros(const Layout& layout);
/// Returns the initial weights, as every rank has them in fp32.
ReferenceTensors initial_weights(const Layout& layout, std::uint64_t seed);

/// A training step in serial double precision from the plain kernels. Shares only the layout with
/// Model. Slow.
class Reference {
public:
  Reference(Layout layout, ReferenceTensors weights);
  /// One micro-batch, tokens and targets [B S]: adds to `gradient`; returns loss_scale times its
  /// loss.
  double accumulate(ReferenceTensors& gradient,
      std::span<const std::int32_t> tokens,
      std::span<const std::int32_t> targets,
      double loss_scale) const;
  /// AdamW with the gradient of the whole step, clipped if `adamw` says so; `step` counts from 1.
  void update(const ReferenceTensors& gradient, const AdamW& adamw, int step);

  const ReferenceTensors& weights() const { return weights_; }

  const Layout& layout() const { return layout_; }

private:
  Layout layout_;
  ReferenceTensors weights_, moment1_, moment2_;
};

/// Bytes that accumulate() holds at once: each block keeps every intermediate of the micro-batch.
std::uint64_t reference_activation_bytes(const Shape& shape);
}  // namespace minitaw::model
