#pragma once

#include <string>
#include <string_view>

#include "kernels/types.hpp"

/// Causal attention with grouped query heads: query head i reads key/value head i h_kv / h. Scores exist only
/// in tiles, never S x S (online softmax: Milakov & Gimelshein 2018; tiling and backward: Dao,
/// FlashAttention-2, 2023).
namespace minitaw::kernels {

struct AttentionSizes {
  int batch = 0;     ///< B
  int seq = 0;       ///< S
  int heads = 0;     ///< h
  int kv_heads = 0;  ///< h_kv, divides h
  int head_dim = 0;  ///< d

  [[nodiscard]] KOKKOS_INLINE_FUNCTION int group() const { return heads / kv_heads; }
};

enum class Attention {
  automatic,  ///< the fastest of this build
  host,       ///< packed tiles in vector registers, one thread per tile of queries; host builds only
  portable,   ///< Kokkos teams, any back end
  cudnn,  ///< cuDNN's fused kernels: bf16, head_dim a multiple of 8 up to 128; CUDA builds with cuDNN only
};

/// "auto", "host", "portable", "cudnn": as decks write them. parse_attention throws InputError for anything
/// else.
[[nodiscard]] std::string name_of(Attention kernel);
[[nodiscard]] Attention parse_attention(std::string_view name);

/// What `kernel` means in this build for elements of type E and these sizes: never automatic. Throws
/// InputError if an explicit choice cannot compute them.
template <class E>
[[nodiscard]] Attention resolve_attention(Attention kernel, const AttentionSizes& sizes);

/// Builds what the resolved kernel needs for these sizes on this queue: plans and workspaces of a vendor's
/// library. Slow; belongs before the first step. Without it a vendor's kernel refuses to run.
template <class E>
void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes,
                       Attention kernel = Attention::automatic);

/// y [T, h d], lse [B, h, S] (log-sum-exp of each row of scaled scores); qkv [T, (h + 2 h_kv) d] after
/// rotation.
template <class E>
void attention_forward(const ExecutionSpace& exec, Matrix<E> y, Vector<float> lse, MatrixIn<E> qkv,
                       const AttentionSizes& sizes, Attention kernel = Attention::automatic);

/// dqkv [T, (h + 2 h_kv) d], delta [B, h, S] (scratch); dy, y [T, h d]. With cudnn, the last bits of dq
/// depend on the order of atomic additions; all other versions give the same bits every time.
template <class E>
void attention_backward(const ExecutionSpace& exec, Matrix<E> dqkv, Vector<float> delta, MatrixIn<E> dy,
                        MatrixIn<E> qkv, MatrixIn<E> y, Vector<const float> lse, const AttentionSizes& sizes,
                        Attention kernel = Attention::automatic);

}  // namespace minitaw::kernels
