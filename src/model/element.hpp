#pragma once

#include "base/bf16.hpp"
#include "model/shape.hpp"

namespace minitaw::model {

/// Calls function(E{}) with the compute type E of `dtype`: where the run-time choice becomes a template's.
template <class Function>
void with_element(Dtype dtype, const Function& function) {
  if (dtype == Dtype::fp32) function(float{});
  else function(Bf16{});
}

}  // namespace minitaw::model
