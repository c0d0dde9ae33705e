#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

/// cuDNN's fused attention behind pointers. No Kokkos here, so that the host's compiler alone reads the large
/// header of cudnn-frontend, and once.
namespace minitaw::kernels::detail::cuda {

/// As kernels::AttentionSizes.
struct AttentionShape {
  int batch, seq, heads, kv_heads, head_dim;

  auto operator<=>(const AttentionShape&) const = default;
};

/// Why cuDNN on the calling thread's device cannot compute causal attention of this shape in bf16, forward
/// and backward; empty if it can. Remembers its answers.
[[nodiscard]] std::string reason_against_cudnn(const AttentionShape& shape);

/// The library's handle of one queue and its plans. Pointers are those of kernels::attention_forward and
/// _backward, bf16 but for lse, in place in the fused projection: nothing is permuted. Failures throw
/// std::runtime_error.
class CudnnAttention {
public:
  explicit CudnnAttention(cudaStream_t stream);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Builds the plans of a shape (seconds, once). Returns the bytes of workspace that they need: with
  /// cuDNN 9.19 on Hopper 4 B h S (d + 1), and with grouped heads 4 B h S d more.
  std::size_t prepare(const AttentionShape& shape);

  void forward(const AttentionShape& shape, void* y, float* lse, const void* qkv, void* workspace);
  void backward(const AttentionShape& shape, void* dqkv, const void* dy, const void* qkv, const void* y,
                const float* lse, void* workspace);

private:
  struct Library;
  struct Plans;
  [[nodiscard]] const Plans& plans_of(const AttentionShape& shape) const;

  std::unique_ptr<Library> library_;
  std::map<AttentionShape, std::unique_ptr<Plans>> plans_;
};

/// "9.19.0"
[[nodiscard]] std::string cudnn_version();
/// "1.19.0"
[[nodiscard]] std::string cudnn_frontend_version();

}  // namespace minitaw::kernels::detail::cuda
