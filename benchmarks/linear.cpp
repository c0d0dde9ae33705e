#include "kernels/kernels.hpp"

#include <fmt/format.h>

#include "families.hpp"
#include "model/layout.hpp"
#include "model/plan.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

/// y [T, out] = x [T, in] w^T + beta y and its two backward products.
struct Layer {
  std::string name;
  std::int64_t tokens, in, out;
  float beta = 0;  ///< 1: adds to the residual stream
};

std::vector<Layer> layers(const Shape& s) {
  const std::int64_t t = s.tokens(), h = s.hidden, f = s.ffn[0];
  return {{"wqkv", t, h, s.qkv()},
          {"wo", t, s.heads * s.head_dim(), h, 1},
          {"w13", t, h, 2 * f},
          {"w2", t, f, h, 1},
          {"head", model::loss_slice(s), h, s.vocab}};
}

double flops(const Layer& l) {
  return 2.0 * static_cast<double>(l.tokens) * static_cast<double>(l.in * l.out);
}

double inner_product(std::int64_t count, const auto& a, const auto& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a(i) * b(i);
  return sum;
}

template <class E>
Problem forward(const Layer& l) {
  const ExecutionSpace exec;
  const Values<E> x(l.tokens, l.in), w(l.out, l.in), y(l.tokens, l.out);
  return {.reset = [=] { l.beta == 0 ? y.poison() : y.reset(); },
          .run = [=] { kernels::linear_forward(exec, y.matrix(), x.matrix(), w.matrix(), l.beta); },
          .error =
              [=] {
                return error_of_elements(y, [&](std::int64_t t, std::int64_t out) {
                  return (l.beta == 0 ? 0 : y.given(t, out)) + inner_product(
                                                                   l.in,
                                                                   [&](auto i) { return x.given(t, i); },
                                                                   [&](auto i) { return w.given(out, i); });
                });
              }};
}

template <class E>
Problem backward_input(const Layer& l) {
  const ExecutionSpace exec;
  const Values<E> dy(l.tokens, l.out), w(l.out, l.in), dx(l.tokens, l.in);
  return {.reset = [=] { dx.poison(); },
          .run = [=] { kernels::linear_backward_input(exec, dx.matrix(), dy.matrix(), w.matrix()); },
          .error =
              [=] {
                return error_of_elements(dx, [&](std::int64_t t, std::int64_t in) {
                  return inner_product(
                      l.out, [&](auto i) { return dy.given(t, i); }, [&](auto i) { return w.given(i, in); });
                });
              }};
}

/// Adds to the total of the micro-batches before.
template <class E>
Problem backward_weight(const Layer& l) {
  const ExecutionSpace exec;
  const Values<E> dy(l.tokens, l.out), x(l.tokens, l.in);
  const Values<float> dw(l.out, l.in);
  return {.reset = [=] { dw.reset(); },
          .run =
              [=] {
                const kernels::Matrix<const E> slope = dy.matrix();
                kernels::linear_backward_weight<float, E>(exec, dw.matrix(), slope, x.matrix(), true);
              },
          .error =
              [=] {
                return error_of_elements(dw, [&](std::int64_t out, std::int64_t in) {
                  return dw.given(out, in) + inner_product(
                                                 l.tokens, [&](auto t) { return dy.given(t, out); },
                                                 [&](auto t) { return x.given(t, in); });
                });
              }};
}

template <class E>
void add_layer(Kernels& kernels, const Layer& l) {
  constexpr model::Dtype dtype = dtype_of<E>;
  const std::string name = "linear/" + l.name + "/" + model::name_of(dtype);
  const std::string shape = fmt::format("T={} in={} out={}", l.tokens, l.in, l.out);
  const auto x = static_cast<double>(l.tokens * l.in), y = static_cast<double>(l.tokens * l.out),
             w = static_cast<double>(l.in * l.out);
  const double e = bytes_of<E>;
  kernels.push_back(
      {name + "/forward", shape, dtype, {flops(l), e * (x + w + (1 + l.beta) * y)}, tolerance<E>, [=] {
         return forward<E>(l);
       }});
  kernels.push_back({name + "/backward_input", shape, dtype, {flops(l), e * (x + w + y)}, tolerance<E>, [=] {
                       return backward_input<E>(l);
                     }});
  kernels.push_back(
      {name + "/backward_weight", shape, dtype, {flops(l), e * (x + y) + 8 * w}, tolerance<float>, [=] {
         return backward_weight<E>(l);
       }});
}

}  // namespace

void add_linear(Kernels& kernels, const Shape& shape) {
  model::with_element(shape.dtype, [&]<class E>(E) {
    for (const Layer& layer : layers(shape)) add_layer<E>(kernels, layer);
  });
}

}  // namespace minitaw::bench
