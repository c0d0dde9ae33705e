// SPDX-License-Identifier: BSD-3-Clause
// Calls every host kernel once at a small fixed size, for callgrind to count the instructions of:
// docs/compare.md. Products of fp32 matrices are left out, because they are the BLAS library's,
// which chooses its code by the processor.
#include <cstdio>
#include <valgrind/callgrind.h>
#include "kernels/detail/backends.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::kernels {
namespace {
ExecutionSpace exec() {
  return {};
}

/// An array with values that never change: some kernels branch on them.
template <class E>
class Array {
public:
  Array(int rows, int cols) : memory_("array", rows * cols), rows_(rows), cols_(cols) {
    std::uint32_t state = 1;
    for (int i = 0; i < rows * cols; ++i) {
      state = state * 1664525U + 1013904223U;  // Numerical Recipes' quick generator
      memory_(i) = of(static_cast<float>(state >> 8U) / static_cast<float>(1U << 24U) - 0.5F);
    }
  }

  operator Matrix<E>() const { return Matrix<E>(memory_.data(), rows_, cols_); }

  operator Matrix<const E>() const { return Matrix<const E>(memory_.data(), rows_, cols_); }

  operator Vector<E>() const { return Vector<E>(memory_.data(), rows_ * cols_); }

  operator Vector<const E>() const { return Vector<const E>(memory_.data(), rows_ * cols_); }

  E& operator[](int i) const { return memory_(i); }

  E* data() const { return memory_.data(); }

private:
  static E of(float value) {
    if constexpr (std::is_same_v<E, Bf16>)
      return to_bf16(value);
    else
      return static_cast<E>(value);
  }

  Kokkos::View<E*, Kokkos::HostSpace> memory_;
  std::size_t rows_, cols_;
};

template <class E>
std::string named(const char* name) {
  return std::string(name) + (std::is_same_v<E, Bf16> ? " bf16" : " fp32");
}

/// The first call is not counted: it may bind functions and let Kokkos allocate.
void count(const std::string& name, const auto& kernel) {
  kernel();
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  CALLGRIND_TOGGLE_COLLECT;
  kernel();
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT(name.c_str());
  CALLGRIND_STOP_INSTRUMENTATION;
}

template <class E>
void count_norm_and_activation() {
  const int rows = 200, width = 250;
  const Array<E> x(rows, width), y(rows, width), dx(rows, width), gain(1, width),
      wide(rows, 2 * width);
  const Array<float> rstd(1, rows), partial(7, width), dgain(1, width);
  count(named<E>("rmsnorm_forward"), [&] { rmsnorm_forward<E>(exec(), y, rstd, {}, x, gain); });
  count(named<E>("rmsnorm_backward"),
      [&] { rmsnorm_backward<E>(exec(), dx, partial, y, x, x, rstd, gain); });
  count(named<E>("swiglu_forward"), [&] { swiglu_forward<E>(exec(), y, wide); });
  count(named<E>("swiglu_backward"), [&] { swiglu_backward<E>(exec(), wide, dx, y, wide); });
  if constexpr (std::is_same_v<E, float>)
    count("rmsnorm_backward_gain fp32",
        [&] { rmsnorm_backward_gain<float>(exec(), dgain, Matrix<const float>(partial), true); });
}

/// Each token twice, the positions sorted by token.
template <class E>
void count_embedding_and_loss() {
  const int rows = 64, width = 1000, vocab = 300;
  const Array<E> table(vocab, width), x(rows, width), logits(rows, vocab);
  const Array<float> dtable(vocab, width);
  const Array<double> losses(1, rows), all(1, 40000), loss(1, 1);
  const Array<std::int32_t> tokens(1, rows), order(1, rows), segments(1, rows / 2 + 1);
  for (int i = 0; i < rows; ++i)
    tokens[i] = (i % (rows / 2)) * 7;
  for (int i = 0; i < rows; ++i)
    order[i] = i / 2 + (i % 2) * (rows / 2);
  for (int i = 0; i <= rows / 2; ++i)
    segments[i] = 2 * i;
  count(named<E>("embedding_forward"), [&] { embedding_forward<E>(exec(), x, table, tokens); });
  count(named<E>("embedding_backward"),
      [&] { embedding_backward<E>(exec(), dtable, x, tokens, order, segments); });
  count(
      named<E>("cross_entropy"), [&] { cross_entropy<E>(exec(), losses, logits, tokens, 0.01F); });
  if constexpr (std::is_same_v<E, float>)
    count("sum_losses", [&] { sum_losses(exec(), loss.data(), all, 0.5); });
}

template <class E>
void count_rope() {
  const int seq = 200, heads = 3, head_dim = 64;
  const Array<E> qkv(seq, (heads + 1) * head_dim);
  const Array<float> table(seq, head_dim);
  rope_table(exec(), table, {{0, seq, 0}});
  count(named<E>("rope"), [&] { rope<E>(exec(), qkv, table, heads, 1); });
}

void count_attention() {
  const AttentionSizes z = {.batch = 1, .seq = 200, .heads = 2, .kv_heads = 1, .head_dim = 64};
  const int width = (z.heads + 2 * z.kv_heads) * z.head_dim, out = z.heads * z.head_dim;
  const Array<float> qkv(z.seq, width), dqkv(z.seq, width), y(z.seq, out), dy(z.seq, out),
      lse(z.heads, z.seq);
  const auto forward = detail::placed(AttentionForward<float>{y, lse, qkv, z});
  const auto backward = detail::placed(AttentionBackward<float>{dqkv, {}, dy, qkv, y, lse, z});
  count("attention_forward fp32", [&] { detail::host::attend(exec(), forward); });
  for (const auto& [name, tasks] :
      {std::pair{"attention_backward fp32 by heads", detail::host::Tasks::heads},
          {"attention_backward fp32 by tiles", detail::host::Tasks::tiles}})
    count(name, [&] { detail::host::attend(exec(), backward, tasks); });
}

/// The last queries of a longer sequence, whose keys and values lie in a buffer of their own.
void count_prefix() {
  const AttentionSizes z = {.batch = 1, .seq = 100, .heads = 2, .kv_heads = 1, .head_dim = 64};
  const int width = (z.heads + 2 * z.kv_heads) * z.head_dim, out = z.heads * z.head_dim;
  const AttentionPart part(z, {0, 100, 150}, {}, 2 * z.head_dim, 50);
  const Array<float> qkv(z.seq, width), dqkv(z.seq, width), y(z.seq, out), dy(z.seq, out),
      lse(z.heads, z.seq), rows(250, 2 * z.head_dim), sums(250, 2 * z.head_dim);
  const KeyValues<float> to{rows.data(), rows.data() + z.head_dim};
  const KeyValues<const float> from{to.keys, to.values};
  count("move_key_values fp32", [&] {
    move_key_values<float, float>(exec(),
        part,
        part.run,
        to,
        part.rows(),
        part.in<const float>(qkv.data()),
        part.rows_in_qkv());
  });
  count("attention_forward fp32 prefix",
      [&] { detail::host::attend(exec(), {y, lse, qkv, part, from}); });
  const AttentionBackward<float> backward{.dqkv = dqkv,
      .delta = {},
      .dy = dy,
      .qkv = qkv,
      .y = y,
      .lse = lse,
      .part = part,
      .key_values = from,
      .gradient_sums = {sums.data(), sums.data() + z.head_dim},
      .accumulate = true};
  for (const auto& [name, tasks] :
      {std::pair{"attention_backward fp32 prefix by heads", detail::host::Tasks::heads},
          {"attention_backward fp32 prefix by tiles", detail::host::Tasks::tiles}})
    count(name, [&] { detail::host::attend(exec(), backward, tasks); });
}

template <class E>
void count_optimizer() {
  const int size = 100003;
  const Array<E> weights(1, size);
  const Array<float> master(1, size), moment1(1, size), moment2(1, size), gradient(1, size);
  for (int i = 0; i < size; ++i)
    moment2[i] = gradient[i] * gradient[i];
  count(named<E>("adamw"),
      [&] { adamw<E>(exec(), weights, master, moment1, moment2, gradient, {}, 1); });
  count(named<E>("add"), [&] { add<E>(exec(), master, weights, true); });
}

template <class E>
void count_all_of() {
  count_norm_and_activation<E>();
  count_embedding_and_loss<E>();
  count_rope<E>();
  count_optimizer<E>();
}
}  // namespace
}  // namespace minitaw::kernels

int main() {
  if (RUNNING_ON_VALGRIND == 0)
    std::puts("nothing is counted: run it by check_instructions.py");
  const Kokkos::ScopeGuard guard;
  minitaw::kernels::count_all_of<float>();
  minitaw::kernels::count_all_of<minitaw::Bf16>();
  minitaw::kernels::count_attention();
  minitaw::kernels::count_prefix();
}
