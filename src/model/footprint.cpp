#include "model/footprint.hpp"

#include "model/plan.hpp"

namespace minitaw::model {

std::size_t flow_bytes(const Shape& shape) {
  return static_cast<std::size_t>(shape.tokens() * shape.hidden) * bytes_of(shape.dtype);
}

std::size_t kept_bytes(const Layout& layout, int shard) { return plan_kept(layout, shard).bytes; }

std::size_t stash_bytes(const Layout& layout, int shard) { return plan_stash(layout, shard).bytes; }

std::size_t workspace_bytes(const Layout& layout) { return plan_workspace(layout).bytes; }

std::size_t library_estimate(const Shape& shape) {
  constexpr std::size_t matmul_workspace = std::size_t{32} << 20;
  const auto rows = static_cast<std::size_t>(shape.tokens() * shape.heads);
  const auto width = static_cast<std::size_t>(shape.head_dim());
  const std::size_t grouped = shape.kv_heads < shape.heads ? width : 0;
  const std::size_t attention = rows * (width + 1 + grouped) * sizeof(float);
  return matmul_workspace + (shape.dtype == Dtype::bf16 ? attention : 0);
}

std::size_t optimiser_bytes(Dtype dtype, std::int64_t elements) {
  const std::size_t buffers = dtype == Dtype::fp32 ? 2 : 3;
  return buffers * sizeof(float) * static_cast<std::size_t>(elements);
}

}  // namespace minitaw::model
