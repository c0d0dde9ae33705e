// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <Kokkos_Core.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#include "base/bf16.hpp"
#include "kernels/settings.hpp"

/// Every kernel takes the execution space, then outputs, inputs, and sizes that extents do not
/// give.

namespace minitaw::kernels {
using ExecutionSpace = Kokkos::DefaultExecutionSpace;
using MemorySpace = ExecutionSpace::memory_space;

/// Host memory that a device copies from and to without stopping the host.
#ifdef KOKKOS_HAS_SHARED_HOST_PINNED_SPACE
using PinnedSpace = Kokkos::SharedHostPinnedSpace;
#else
using PinnedSpace = Kokkos::HostSpace;
#endif

/// Kernels run on the host: loops over a row belong to one thread, and the vector units do the
/// rest.
inline constexpr bool on_host = std::is_same_v<MemorySpace, Kokkos::HostSpace>;

template <class E>
using Matrix =
    Kokkos::View<E**, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class E>
using Vector =
    Kokkos::View<E*, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// A read-only matrix that takes no part in deducing E, so that a Matrix<E> converts.
template <class E>
using MatrixIn = Matrix<const std::type_identity_t<E>>;
template <class E>
using VectorIn = Vector<const std::type_identity_t<E>>;
using TokensIn = Vector<const std::int32_t>;

/// An operand of a product: a matrix as it is in memory, or its transpose.
template <class E>
struct Factor {
  Matrix<const E> matrix;
  bool transposed = false;
};

/// c [m, n] = a b + beta c; beta is 0 (c may hold anything) or 1. By the vendor's library where it
/// has these types (BLAS, cuBLASLt), else a portable kernel. Products are summed in float, whatever
/// E and C are.
template <class C, class E>
void matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta);

// Linear layers without bias; weights w [out, in] as in y = x w^T.

/// y [T, out] = x [T, in] w^T + beta y; beta 1 adds the layer to a residual stream without another
/// pass.
template <class E>
void linear_forward(
    const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x, MatrixIn<E> w, float beta = 0) {
  matmul<E, E>(exec, y, {x}, {w, true}, beta);
}

/// dx [T, in] = dy [T, out] w.
template <class E>
void linear_backward_input(
    const ExecutionSpace& exec, Matrix<E> dx, MatrixIn<E> dy, MatrixIn<E> w) {
  matmul<E, E>(exec, dx, {dy}, {w}, 0);
}

/// dw [out, in] is, or with `accumulate` adds to, dy^T x.
template <class G, class E>
void linear_backward_weight(
    const ExecutionSpace& exec, Matrix<G> dw, Matrix<const E> dy, MatrixIn<E> x, bool accumulate) {
  matmul<G, E>(exec, dw, {dy, true}, {x}, accumulate ? 1.0F : 0.0F);
}

/// x [T, H] = table [V, H] at tokens [T].
template <class E>
void embedding_forward(const ExecutionSpace& exec, Matrix<E> x, MatrixIn<E> table, TokensIn tokens);

/// dtable [V, H] adds to the rows of dx [T, H] that share a token. order [T]: positions by token,
/// ascending. Those of one token, order[starts(s)] .. order[starts(s + 1) - 1], are summed by one
/// team in that order.
template <class E>
void embedding_backward(const ExecutionSpace& exec,
    Matrix<float> dtable,
    MatrixIn<E> dx,
    TokensIn tokens,
    TokensIn order,
    TokensIn starts);

// RMSNorm (Zhang & Sennrich 2019): y = x rstd gain, rstd = 1 / sqrt(mean(x^2) + 1e-5) of each row.

/// y [T, H], rstd [T]; x [T, H], gain [H]. `copy` [T, H], if not empty, receives x. Same x, same
/// bits.
template <class E>
void rmsnorm_forward(const ExecutionSpace& exec,
    Matrix<E> y,
    Vector<float> rstd,
    Matrix<E> copy,
    MatrixIn<E> x,
    VectorIn<E> gain);

/// Runs of rows that rmsnorm_backward takes: what a device works on at a time; on a host 256, for
/// the same sums always.
inline constexpr std::int64_t most_rmsnorm_chunks = 512;
std::int64_t rmsnorm_chunks(std::int64_t rows);

/// dx = residual + gradient through the norm; residual [T, H] may be empty. dx may be dy or
/// residual itself. gain_partial [rmsnorm_chunks(T), H]: sums over equal runs of rows, for
/// rmsnorm_backward_gain.
template <class E>
void rmsnorm_backward(const ExecutionSpace& exec,
    Matrix<E> dx,
    Matrix<float> gain_partial,
    MatrixIn<E> dy,
    MatrixIn<E> residual,
    MatrixIn<E> x,
    Vector<const float> rstd,
    VectorIn<E> gain);

/// dgain [H] is, or with `accumulate` adds to, the sum over the chunks.
template <class G>
void rmsnorm_backward_gain(
    const ExecutionSpace& exec, Vector<G> dgain, Matrix<const float> gain_partial, bool accumulate);

// Rotary embedding (Su et al. 2021) on pairs (2i, 2i+1) with theta 10000, in place on the fused
// projection qkv [T, (h + 2 h_kv) d]: queries and keys turn where they are, so no split ever copies
// them.

/// table [S, d]: cosine and sine of position theta^(-2i / d), angles in double: float has no digits
/// left at 10^5. Row s has the position that the run has there which s is in; rows of no run stay.
void rope_table(const ExecutionSpace& exec, Matrix<float> table, const std::vector<QueryRun>& runs);

/// Turns the first `heads` heads of every token; row t takes row t mod S of the table. direction 1:
/// forward; -1: the gradient.
template <class E>
void rope(const ExecutionSpace& exec,
    Matrix<E> qkv,
    Matrix<const float> table,
    int heads,
    float direction);

// Causal attention in tiles, never S x S (online softmax: Milakov & Gimelshein 2018; Dao,
// FlashAttention-2, 2023).

enum class Attention {
  automatic,  ///< the fastest of this build
  host,       ///< packed tiles in vector registers, a thread per tile of queries; host builds only
  portable,   ///< Kokkos teams, any back end
  cudnn,      ///< cuDNN's fused kernels; CUDA builds with it, bf16, head_dim a multiple of 8 to 128
};

/// "auto", "host", "portable", "cudnn", as in decks. parse_attention throws InputError for anything
/// else.
std::string name_of(Attention kernel);
Attention parse_attention(std::string_view name);

struct AttentionChoice {
  Attention kernel;         ///< never automatic
  std::string reason = {};  ///< of `automatic` that means portable: why cuDNN is not used
};

/// Returns the one kernel that `kernel` means for all of these calls. Throws InputError if an
/// explicit choice cannot compute one of them.
template <class E>
AttentionChoice resolve_attention(Attention kernel, const std::vector<AttentionPart>& calls);

/// Builds what the resolved kernel needs for this part on this queue: plans and workspaces of a
/// vendor's library. Slow; belongs before the first step. Without it a vendor's kernel refuses to
/// run.
template <class E>
void attention_prepare(
    const ExecutionSpace& exec, const AttentionPart& part, Attention kernel = Attention::automatic);

/// Queries of a run against all keys up to their own position. Only rows of the run and heads of
/// the part are written.
template <class E>
struct AttentionForward {
  Matrix<E> y;          ///< [T, h d]
  Vector<float> lse;    ///< [B, h, S], log-sum-exp of rows of scaled scores
  Matrix<const E> qkv;  ///< [T, (h + 2 h_kv) d], rotated
  AttentionPart part;
  KeyValues<const E> key_values{};  ///< positions [0, run.end()); if part.own_rows
};

template <class E>
void attention_forward(const ExecutionSpace& exec,
    const AttentionForward<E>& p,
    Attention kernel = Attention::automatic);

/// The gradient of queries goes to their columns of dqkv, in rows of the run. Those of keys and
/// values go to theirs, or with part.own_rows to gradient_sums (G: float or E), at positions [0,
/// run.end()): all other positions stay.
template <class E, class G = E>
struct AttentionBackward {
  Matrix<E> dqkv;           ///< [T, (h + 2 h_kv) d]; with cudnn, dq varies in its last bits
  Vector<float> delta;      ///< [B, h, S], scratch
  Matrix<const E> dy;       ///< [T, h d]
  Matrix<const E> qkv, y;   ///< as in the forward pass
  Vector<const float> lse;  ///< of the forward pass
  AttentionPart part;
  KeyValues<const E> key_values{};  ///< as in the forward pass
  KeyValues<G> gradient_sums{};     ///< with rows as key_values has them
  bool accumulate = false;          ///< adds to gradient_sums
};

template <class E, class G = E>
void attention_backward(const ExecutionSpace& exec,
    const AttentionBackward<E, G>& p,
    Attention kernel = Attention::automatic);

/// Keys and values, or their gradients, of the heads of the part at the positions of `run`: from
/// one place to another, in the other type, or with `adds` added there.
template <class To, class From>
void move_key_values(const ExecutionSpace& exec,
    const AttentionPart& part,
    const QueryRun& run,
    KeyValues<To> to,
    const KeyRows& to_rows,
    KeyValues<const From> from,
    const KeyRows& from_rows,
    bool adds = false);

// SwiGLU (Shazeer 2020): y = silu(gate) up. x [T, 2 F]: gate columns, then up columns.

/// y [T, F].
template <class E>
void swiglu_forward(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x);

/// dx [T, 2 F], and y [T, F] again, for the gradient of the weights after it. dx may be x, y may
/// be dy.
template <class E>
void swiglu_backward(
    const ExecutionSpace& exec, Matrix<E> dx, Matrix<E> y, MatrixIn<E> dy, MatrixIn<E> x);

/// Softmax cross-entropy, forward and backward in one go over a slice of tokens: losses [C] = -log
/// softmax at the target of each row; logits [C, V] become their own gradient, scale (softmax - one
/// at the target).
template <class E>
void cross_entropy(const ExecutionSpace& exec,
    Vector<double> losses,
    Matrix<E> logits,
    TokensIn targets,
    float scale);
/// *loss adds to scale times the sum of losses, in an order that depends on their number alone.
void sum_losses(
    const ExecutionSpace& exec, double* loss, Vector<const double> losses, double scale);

/// accumulator [n] = contribution [n], or += it with `accumulate`.
template <class E>
void add(const ExecutionSpace& exec,
    Vector<float> accumulator,
    VectorIn<E> contribution,
    bool accumulate);

/// rounded [n] = sum [n] in the type E.
template <class E>
void round(const ExecutionSpace& exec, Vector<E> rounded, Vector<const float> sum);
/// *sum = the sum of the squares of values [n], or +=, in an order that depends on n alone.
/// partials: as many doubles.
inline constexpr int most_square_partials = 512;
void add_squares(const ExecutionSpace& exec,
    float* sum,
    double* partials,
    Vector<const float> values,
    bool accumulate);

/// One step (counted from 1) of AdamW: master, moment1, moment2 [n] in place; weights [n] = master,
/// rounded; gradient [n], clipped by settings: *squares is the sum of the squares of the whole one.
/// E = float: weights may be master.
template <class E>
void adamw(const ExecutionSpace& exec,
    Vector<E> weights,
    Vector<float> master,
    Vector<float> moment1,
    Vector<float> moment2,
    Vector<const float> gradient,
    const AdamW& settings,
    int step,
    const float* squares = nullptr);

/// weights [n], master [n] = numbers first .. first + n of `row`; either may be empty. Same bits
/// everywhere.
template <class E>
void uniform(const ExecutionSpace& exec,
    Vector<E> weights,
    Vector<float> master,
    std::int64_t first,
    const UniformRow& row);

// The vendors' libraries behind matrix products and attention.

/// Throws InputError if kernels find the members of their functors elsewhere than the host put
/// them, as in builds with nvcc 13 and g++ whose Views have [[no_unique_address]] members. To be
/// called first.
void require_one_layout();
/// Handles and workspaces of matrix products on this queue; to be called before its first step,
/// because it allocates.
void prepare(const ExecutionSpace& exec);
/// While on, the first matrix product of a kind on this queue times all algorithms that the library
/// offers, and keeps the fastest; what it adds to is then of no use. Not in a step: it waits.
/// Nothing on a host.
void choose_by_time(const ExecutionSpace& exec, bool on);
/// Returns the algorithms chosen by time for products on this queue, one line each.
std::vector<std::string> choices(const ExecutionSpace& exec);
/// Kokkos's label of the libraries' workspaces, which live as long as the process.
inline constexpr const char* library_label = "minitaw::libraries";
/// Device bytes that they hold now, of all queues.
std::size_t library_bytes();
/// Name and version of each library that this build multiplies and attends with.
std::vector<std::pair<std::string, std::string>> library_versions();
}  // namespace minitaw::kernels
