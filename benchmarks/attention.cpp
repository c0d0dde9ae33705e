#include "kernels/attention.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "bench.hpp"

namespace minitaw::bench {

namespace {

/// The portable kernel is a reference, so slow on a device that long sequences would take all the time.
kernels::AttentionSizes shape(kernels::Attention kernel) {
  const Sizes& s = sizes();
  const std::int64_t longest = kernel == kernels::Attention::portable ? 2048 : s.tokens;
  return {1, static_cast<int>(std::min(s.tokens, longest)), s.heads, s.kv_heads,
          static_cast<int>(s.hidden / s.heads)};
}

/// FLOPs with half of the square: forward 2 products of [S, S] and d, backward 5.
double flops(const kernels::AttentionSizes& z, int products) {
  return products * static_cast<double>(z.seq) * z.seq * z.head_dim * z.heads;
}

template <class E>
struct Buffers {
  explicit Buffers(const kernels::AttentionSizes& z)
      : qkv(z.seq, (z.heads + 2 * z.kv_heads) * z.head_dim),
        dqkv(z.seq, (z.heads + 2 * z.kv_heads) * z.head_dim), y(z.seq, z.heads * z.head_dim),
        dy(z.seq, z.heads * z.head_dim), lse(z.heads, z.seq), delta(z.heads, z.seq) {}
  Values<E> qkv, dqkv, y, dy;
  Values<float> lse, delta;
};

template <class E>
void add_kernel(kernels::Attention kernel) {
  const kernels::AttentionSizes z = shape(kernel);
  const std::string name = "attention/" + kernels::name_of(kernel) + "/" + name_of_type<E>();
  add(name + "/forward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    kernels::attention_prepare<E>(exec, z, kernel);
    const Buffers<E> b(z);
    measure(state, exec, {.flops = flops(z, 2)}, [&] {
      kernels::attention_forward<E>(exec, b.y.matrix(), b.lse.vector(), b.qkv.matrix(), z, kernel);
    });
  });
  add(name + "/backward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    kernels::attention_prepare<E>(exec, z, kernel);
    const Buffers<E> b(z);
    kernels::attention_forward<E>(exec, b.y.matrix(), b.lse.vector(), b.qkv.matrix(), z, kernel);
    measure(state, exec, {.flops = flops(z, 5)}, [&] {
      kernels::attention_backward<E>(exec, b.dqkv.matrix(), b.delta.vector(), b.dy.matrix(), b.qkv.matrix(),
                                     b.y.matrix(), b.lse.vector(), z, kernel);
    });
  });
}

/// Those of this build that can do the shape.
template <class E>
void add_kernels() {
  using enum kernels::Attention;
  for (const kernels::Attention kernel : {host, portable, cudnn}) {
    try {
      if (kernels::resolve_attention<E>(kernel, shape(kernel)) != kernel) continue;
    } catch (const InputError&) {
      continue;
    }
    add_kernel<E>(kernel);
  }
}

}  // namespace

void add_attention() {
  add_kernels<float>();
  add_kernels<Bf16>();
}

}  // namespace minitaw::bench
