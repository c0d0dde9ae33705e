// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <mpi.h>
#include <span>
#include "deck/deck.hpp"
#include "engine/runtime.hpp"

// Compares a case's losses, gradients and weights with a reference.
namespace minitaw::harness {
/// A tensor of the whole model by name, on the host.
struct NamedTensor {
  std::string name;
  std::vector<float> values;
};

enum class Which { weights, gradients };

/// All tensors of the model, brought together on rank 0 of `comm` (empty elsewhere), in the order
/// of the layers, embeddings last: the current weights, or the gradients of the last step.
/// Collective over the ranks of the case.
std::vector<NamedTensor> gather(const engine::Runtime& runtime, Which which, MPI_Comm comm);

struct Difference {
  double worst = 0;    ///< largest relative error of a tensor
  std::string tensor;  ///< where
};

/// |a - b| over |b|, at least 1 nat: a loss is a difference of logits, whose rounding does not
/// shrink with it.
double loss_error(double a, double b);
/// Root mean square of a - b over that of b, tensor by tensor. Where a gradient cancels, rounding
/// does not shrink: b counts as at least the root mean square of its like in all layers, a tenth of
/// that of all tensors, and 1e-9.
Difference compare_gradients(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b);

/// Root mean square of the difference between the weights of one tensor and `wanted`, their values
/// in double precision, over that of `wanted`. Weights in bf16 are rounded: where an error of
/// `slack`, relative to the tensor, decides between two bf16 numbers, both count as right.
double weight_error(
    const NamedTensor& tensor, std::span<const double> wanted, model::Dtype dtype, double slack);

/// Names of what a case, and its serial training, are compared with.
constexpr std::string_view serial_name = "serial reference", float64_name = "float64 reference";

/// Largest differences that count as right, and from what.
struct Tolerance {
  struct Step {
    double loss, gradient;
  };

  std::string reference;
  Step first;  ///< of the same weights
  Step later;  ///< of weights that may differ by what AdamW makes of rounding noise
  double weights;
  /// The limit of the first gradient, or half of that of the later ones. At 1, a gradient of the
  /// first step may be missing.
  double largest(int steps) const;
};

/// Tolerance of a case against the serial schedule in the same dtype, whatever its depth, width and
/// number of tokens.
Tolerance serial_tolerance(const Case& c);
/// Tolerance of the serial schedule against plain loops in double precision.
Tolerance float64_tolerance(const Case& c);

struct Check {
  struct Step {
    double loss = 0;  ///< of the later ones, the largest
    Difference gradient;
  };

  Step first;
  Step later;  ///< losses of all steps after the first, gradients of the last
  Difference
      weights;  ///< after the last step, from AdamW in double precision on the case's own gradients
  std::string bytes{};   ///< how what ranks sent differs from the plan; empty: not at all
  std::string unused{};  ///< memory that was planned and that a rank has never written; empty: none

  /// A difference that has a limit.
  struct Figure {
    std::string what;
    double error, allowed;
    std::string from;  ///< what it is compared with
    /// The error as a share of its limit; infinite if it is no number.
    double share() const;
  };

  std::vector<Figure> figures(const Tolerance& tolerance) const;
  /// The figure that uses the largest share of its limit.
  Figure closest(const Tolerance& tolerance) const;
  bool passes(const Tolerance& tolerance) const;
  /// One sentence: what is wrong, by how much, where.
  [[nodiscard]] std::string failure(const Tolerance& tolerance) const;
};

/// Losses, gradients and weights of some steps of a case; as a reference, those that every schedule
/// must reproduce.
struct Training {
  std::vector<double> losses;          ///< of each step
  std::vector<NamedTensor> gradients;  ///< of the first step
  std::vector<NamedTensor> later{};    ///< gradients of the last step; empty if that is the first
  /// Difference between the weights after the last step and those that AdamW in double precision
  /// makes of the initial weights and the executed gradients. A comparison with the weights of
  /// another training would be useless: the first steps of AdamW are as long as the learning rate
  /// whatever the size of the gradient, rounding noise included.
  Difference weights{};
};

Case serial_case(const Case& c);
/// Key of a reference: model, data, seed and number of steps.
std::string reference_key(const Case& c);
/// Executes steps; gathers losses, gradients and weights on rank 0. Collective.
Training run_steps(engine::Runtime& runtime, const Case& c, int steps, MPI_Comm comm);
/// Executes the serial baseline for some steps on this process.
Training serial_reference(const Case& c, int steps);
/// Executes the float64 model in src/model/reference, which shares no kernel with the engine.
Training float64_reference(const Case& c, int steps);
/// Compares `a` with the reference `b`. The weights of `b` do not count.
Check compare(const Training& a, const Training& b);

/// Cache of the first steps of serial baselines, up to 128 MiB and the last one: most cases of a
/// sweep share a few.
class References {
public:
  /// Returns the reference of a case; executes it at first use. Valid until the next call.
  const Training& of(const Case& c);

private:
  std::map<std::string, Training> known_;
  std::size_t values_ = 0;  ///< floats held
};
}  // namespace minitaw::harness
