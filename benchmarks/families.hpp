#pragma once

#include "kernel.hpp"

/// What each file of kernels adds for one shape.
namespace minitaw::bench {

void add_linear(Kernels& kernels, const Shape& shape);
void add_attention(Kernels& kernels, const Shape& shape);
void add_rmsnorm(Kernels& kernels, const Shape& shape);
void add_swiglu(Kernels& kernels, const Shape& shape);
void add_rope(Kernels& kernels, const Shape& shape);
void add_loss(Kernels& kernels, const Shape& shape);
void add_embedding(Kernels& kernels, const Shape& shape);
void add_updates(Kernels& kernels, const Shape& shape);

}  // namespace minitaw::bench
