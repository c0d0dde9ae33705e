#pragma once

#include "kernels/cuda/runtime.hpp"
#include "kernels/kernels.hpp"
#ifdef MINITAW_HAVE_CUBLASLT
#include "kernels/cuda/cublaslt.hpp"
#endif
#ifdef MINITAW_HAVE_CUDNN
#include "kernels/cuda/cudnn_attention.hpp"
#endif

namespace minitaw::kernels::detail::cuda {

/// What the vendor's libraries keep for one queue, which one thread uses at a time.
struct Queue {
  explicit Queue(cudaStream_t queue_stream);

  cudaStream_t stream;
  Workspace workspace;
#ifdef MINITAW_HAVE_CUBLASLT
  CublasLt products;
#endif
#ifdef MINITAW_HAVE_CUDNN
  CudnnAttention attention;
#endif
};

/// The same object for every copy of `exec`; its device becomes the calling thread's. The first call makes
/// it, which allocates; it lives until Kokkos ends.
[[nodiscard]] Queue& queue_of(const ExecutionSpace& exec);

/// Bytes of all workspaces.
[[nodiscard]] std::size_t workspace_bytes();

}  // namespace minitaw::kernels::detail::cuda
