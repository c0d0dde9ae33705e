#include "kernels/linear.hpp"

#include "bench.hpp"

namespace minitaw::bench {

namespace {

/// y [T, out] = x [T, in] w^T and its two backward products.
struct Layer {
  std::string name;
  std::int64_t in, out;
};

std::vector<Layer> layers() {
  const Sizes& s = sizes();
  const std::int64_t head_dim = s.hidden / s.heads;
  return {{"wqkv", s.hidden, (s.heads + 2 * s.kv_heads) * head_dim},
          {"wo", s.hidden, s.hidden},
          {"w13", s.hidden, 2 * s.ffn},
          {"w2", s.ffn, s.hidden},
          {"head", s.hidden, s.vocab}};
}

template <class E>
Cost cost_of(const Layer& layer) {
  const auto t = static_cast<double>(sizes().tokens), in = static_cast<double>(layer.in),
             out = static_cast<double>(layer.out);
  return {2 * t * in * out, (t * in + t * out + in * out) * sizeof(E)};
}

template <class E>
void add_layer(const Layer& layer) {
  const std::int64_t t = sizes().tokens;
  const std::string name = "linear/" + layer.name + "/" + name_of_type<E>();
  add(name + "/forward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> x(t, layer.in), w(layer.out, layer.in), y(t, layer.out);
    measure(state, exec, cost_of<E>(layer),
            [&] { kernels::linear_forward(exec, y.matrix(), x.matrix(), w.matrix()); });
  });
  add(name + "/backward_input", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> dy(t, layer.out), w(layer.out, layer.in), dx(t, layer.in);
    measure(state, exec, cost_of<E>(layer),
            [&] { kernels::linear_backward_input(exec, dx.matrix(), dy.matrix(), w.matrix()); });
  });
  add(name + "/backward_weight", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> dy(t, layer.out), x(t, layer.in);
    const Values<float> dw(layer.out, layer.in);
    const kernels::Matrix<const E> slope = dy.matrix();
    measure(state, exec, cost_of<E>(layer),
            [&] { kernels::linear_backward_weight<float, E>(exec, dw.matrix(), slope, x.matrix(), true); });
  });
}

}  // namespace

void add_linear() {
  for (const Layer& layer : layers()) {
    add_layer<float>(layer);
    add_layer<Bf16>(layer);
  }
}

}  // namespace minitaw::bench
