#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels {

/// Softmax cross-entropy, forward and backward in one go over a slice of tokens: losses [C] = -log softmax at
/// the target of each row; logits [C, V] become their own gradient, scale (softmax - one at the target).
template <class E>
void cross_entropy(const ExecutionSpace& exec, Vector<double> losses, Matrix<E> logits, TokensIn targets,
                   float scale);

/// *loss adds to scale times the sum of losses, in an order that depends on their number alone.
void sum_losses(const ExecutionSpace& exec, double* loss, Vector<const double> losses, double scale);

}  // namespace minitaw::kernels
