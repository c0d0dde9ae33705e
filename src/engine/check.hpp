#pragma once

#include <mpi.h>
#include <span>
#include <string>
#include <vector>

#include "engine/session.hpp"

namespace minitaw::engine {

/// A tensor of the whole model by name, on the host.
struct NamedTensor {
  std::string name;
  std::vector<float> values;
};

enum class Which { weights, gradients };

/// All tensors of the model, brought together on rank 0 of `comm` (empty elsewhere), in the order of the
/// layers, embeddings last: the current weights, or the gradients of the last step. Collective over the ranks
/// of the session.
[[nodiscard]] std::vector<NamedTensor> gather(const Session& session, Which which, MPI_Comm comm);

/// How far two models are apart.
struct Difference {
  double worst = 0;    ///< largest relative error of a tensor
  std::string tensor;  ///< where
};

/// |a - b| over |b|, or over 1 nat where the loss is less than that: it is a difference of logits, so its
/// rounding does not shrink with it, and with one token in the vocabulary it is zero.
[[nodiscard]] double loss_error(double a, double b);

/// Root mean square of a - b over that of b, tensor by tensor. Rounding does not shrink with a tensor whose
/// gradient cancels, so b counts as at least a hundredth of the root mean square of all tensors, and 1e-9:
/// where both are zero, the error is.
[[nodiscard]] Difference compare_gradients(const std::vector<NamedTensor>& a,
                                           const std::vector<NamedTensor>& b);

/// The same for the weights of one tensor against their values in double precision. Weights in bf16 are those
/// values rounded; where `wanted` is so close to the border between two bf16 numbers that an error of
/// `slack`, relative to the tensor, decides, both are right.
[[nodiscard]] double weight_error(const NamedTensor& tensor, std::span<const double> wanted,
                                  model::Dtype dtype, double slack);

/// Largest differences that count as right, and from what.
struct Tolerance {
  struct Step {
    double loss, gradient;
  };
  std::string reference;
  Step first;  ///< of the same weights
  Step later;  ///< of weights that may differ by what AdamW makes of rounding noise
  double weights;
};

/// Of a case against the serial schedule in the same dtype. In bf16 gradients are rounded wherever they are
/// handed on, at 2^-9 each time, so schedules differ by a few times 1e-3. Few tokens average less of it.
[[nodiscard]] Tolerance serial_tolerance(const deck::Case& c);
/// Of the serial schedule against plain loops in double precision: rounding grows with depth and sequence.
[[nodiscard]] Tolerance float64_tolerance(const deck::Case& c);

/// What a comparison with a reference found; complete on rank 0.
struct Check {
  struct Step {
    double loss = 0;  ///< of the later ones, the largest
    Difference gradient;
  };
  Step first;
  Step later;          ///< losses of all steps behind the first, gradients of the last
  Difference weights;  ///< after the last step, from AdamW in double precision on the case's own gradients
  [[nodiscard]] bool passes(const Tolerance& tolerance) const;
  /// One sentence: what is wrong, by how much, where.
  [[nodiscard]] std::string failure(const Tolerance& tolerance) const;
};

}  // namespace minitaw::engine
