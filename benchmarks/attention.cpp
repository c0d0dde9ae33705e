#include "kernels/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attention_rows.hpp"
#include "base/error.hpp"
#include "families.hpp"
#include "model/layout.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

using kernels::Attention;
using kernels::AttentionSizes;

/// The portable kernel is a reference, so slow that long sequences would take all the time.
AttentionSizes sizes_of(const Shape& s, Attention kernel) {
  const std::int64_t longest = kernel == Attention::portable ? 2048 : s.seq;
  return {static_cast<int>(s.micro_batch), static_cast<int>(std::min(s.seq, longest)), s.heads, s.kv_heads,
          static_cast<int>(s.head_dim())};
}

template <class E>
struct Buffers {
  Buffers(const AttentionSizes& sizes, Attention chosen)
      : z(sizes), kernel(chosen), qkv(tokens(), (z.heads + 2 * z.kv_heads) * z.head_dim, {.scale = 4}),
        dqkv(tokens(), qkv.cols()), y(tokens(), z.heads * z.head_dim), dy(tokens(), y.cols()),
        lse(std::int64_t{z.batch} * z.heads, z.seq), delta(lse.rows(), z.seq) {
    kernels::attention_prepare<E>(exec, z, kernel);
  }
  void forward() const {
    kernels::attention_forward<E>(exec, y.matrix(), lse.vector(), qkv.matrix(), z, kernel);
  }
  void backward() const {
    kernels::attention_backward<E>(exec, dqkv.matrix(), delta.vector(), dy.matrix(), qkv.matrix(), y.matrix(),
                                   lse.vector(), z, kernel);
  }
  [[nodiscard]] std::int64_t tokens() const { return std::int64_t{z.batch} * z.seq; }

  ExecutionSpace exec;
  AttentionSizes z;
  Attention kernel;
  Values<E> qkv, dqkv, y, dy;
  Values<float> lse, delta;
};

template <class E>
Problem forward(const AttentionSizes& z, Attention kernel) {
  const Buffers<E> b(z, kernel);
  return {.reset = [=] { b.y.poison(), b.lse.poison(); },
          .run = [=] { b.forward(); },
          .error = [=] { return error_of_forward(b.z, b.y, b.lse, b.qkv); }};
}

template <class E>
Problem backward(const AttentionSizes& z, Attention kernel) {
  const Buffers<E> b(z, kernel);
  b.forward();
  return {.reset = [=] { b.dqkv.poison(), b.delta.poison(); },
          .run = [=] { b.backward(); },
          .error = [=] { return error_of_backward(b.z, b.dqkv, b.dy, b.qkv, b.y, b.lse); }};
}

/// Vendors round probabilities to bf16 before they multiply with them.
template <class E>
constexpr double attention_tolerance = std::is_same_v<E, Bf16> ? 3e-2 : tolerance<E>;

/// Causal: half of the square and the diagonal. Forward 2 products with the scores, backward 5.
double flops(const AttentionSizes& z, int products) {
  return products * static_cast<double>(z.seq) * (z.seq + 1.0) * z.head_dim * z.heads * z.batch;
}

template <class E>
void add_kernel(Kernels& kernels, const AttentionSizes& z, Attention kernel) {
  constexpr model::Dtype dtype = dtype_of<E>;
  const std::string name = "attention/" + kernels::name_of(kernel) + "/" + model::name_of(dtype);
  const std::string shape =
      fmt::format("B={} S={} heads={}/{} d={}", z.batch, z.seq, z.heads, z.kv_heads, z.head_dim);
  const double t = static_cast<double>(z.batch) * z.seq, y = t * z.heads * z.head_dim,
               qkv = t * (z.heads + 2 * z.kv_heads) * z.head_dim, lse = 4 * t * z.heads, e = bytes_of<E>;
  kernels.push_back(
      {name + "/forward", shape, dtype, {flops(z, 2), e * (qkv + y) + lse}, attention_tolerance<E>, [=] {
         return forward<E>(z, kernel);
       }});
  kernels.push_back({name + "/backward",
                     shape,
                     dtype,
                     {flops(z, 5), e * (2 * qkv + 2 * y) + lse},
                     attention_tolerance<E>,
                     [=] { return backward<E>(z, kernel); }});
}

/// Whether this build has it, for this shape.
template <class E>
bool possible(Attention kernel, const AttentionSizes& z) {
  try {
    return kernels::resolve_attention<E>(kernel, z) == kernel;
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

void add_attention(Kernels& kernels, const Shape& shape) {
  model::with_element(shape.dtype, [&]<class E>(E) {
    for (const Attention kernel : {Attention::host, Attention::portable, Attention::cudnn})
      if (const AttentionSizes z = sizes_of(shape, kernel); possible<E>(kernel, z))
        add_kernel<E>(kernels, z, kernel);
  });
}

}  // namespace minitaw::bench
