#pragma once

namespace minitaw::model {

/// AdamW (Loshchilov & Hutter 2019); decay on matrices only.
struct AdamW {
  float learning_rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float decay = 0.1F;
};

}  // namespace minitaw::model
