#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/shape.hpp"

namespace minitaw::model {

/// One weight tensor inside a flat buffer, row-major rows x cols. A vector is rows x 1.
struct Tensor {
  std::string name;         ///< "layers.3.wqkv", "embedding", "norm", "head"
  int layer = -1;           ///< block index; -1 for the ends
  std::int64_t rows = 0;    ///< output features (or elements of a vector)
  std::int64_t cols = 0;    ///< input features (1 for a vector)
  std::int64_t offset = 0;  ///< elements from the start of the flat buffer
  bool decay = false;       ///< weight decay applies (matrices)

  [[nodiscard]] std::int64_t size() const { return rows * cols; }
};

/// Every tensor starts at a multiple of this many elements, so that vector loads and cuBLASLt stay aligned. The
/// gaps hold zeros and travel with the shard.
inline constexpr std::int64_t alignment = 64;

/// A run of consecutive blocks in one flat buffer. Per block, in this order:
///   norm1 [H], wqkv [(h + 2 h_kv) d, H], wo [H, h d], norm2 [H], w13 [2 F, H] (gate rows, then up rows), w2 [H, F]
/// Linear weights are stored [out, in], as in y = x W^T.
struct Shard {
  int first_layer = 0;
  int layers = 0;
  std::int64_t elements = 0;  ///< of the flat buffer, gaps included
  std::vector<Tensor> tensors;
};

/// Embedding [V, H], final norm [H], head [V, H] in one flat buffer, padded so that it splits into equal slices.
struct Ends {
  std::int64_t elements = 0;
  std::int64_t slice = 0;  ///< elements of one slice; elements = slices * slice
  std::vector<Tensor> tensors;
};

struct Layout {
  Shape shape;
  std::vector<Shard> shards;
  Ends ends;
};

/// Splits the blocks into `shards` runs, balanced by cost (FLOPs of a block), each with at least one block, and
/// the ends into `slices` equal slices. Throws InputError if there are fewer layers than shards.
Layout make_layout(const Shape& shape, int shards, int slices);

}  // namespace minitaw::model
