#include "bench.hpp"
#include "kernels/adamw.hpp"
#include "kernels/add.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/rmsnorm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"

namespace minitaw::bench {

namespace {

/// `elements` of E and `floats` of fp32 that a call reads or writes.
template <class E>
Cost moves(double elements, double floats = 0) {
  return {.bytes = elements * sizeof(E) + floats * sizeof(float)};
}

template <class E>
void add_norms() {
  const std::int64_t t = sizes().tokens, h = sizes().hidden, chunks = std::min<std::int64_t>(t, 256);
  const auto cells = static_cast<double>(t * h);
  const std::string type = name_of_type<E>();
  add("rmsnorm/" + type + "/forward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> x(t, h), y(t, h), gain(h);
    const Values<float> rstd(t);
    measure(state, exec, moves<E>(2 * cells), [&] {
      kernels::rmsnorm_forward<E>(exec, y.matrix(), rstd.vector(), {}, x.matrix(), gain.vector());
    });
  });
  add("rmsnorm/" + type + "/forward_copy", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> x(t, h), y(t, h), copy(t, h), gain(h);
    const Values<float> rstd(t);
    measure(state, exec, moves<E>(3 * cells), [&] {
      kernels::rmsnorm_forward<E>(exec, y.matrix(), rstd.vector(), copy.matrix(), x.matrix(), gain.vector());
    });
  });
  add("rmsnorm/" + type + "/backward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> x(t, h), dy(t, h), dx(t, h), residual(t, h), gain(h);
    const Values<float> rstd(t), partial(chunks, h);
    measure(state, exec, moves<E>(4 * cells, static_cast<double>(chunks * h)), [&] {
      kernels::rmsnorm_backward<E>(exec, dx.matrix(), partial.matrix(), dy.matrix(), residual.matrix(),
                                   x.matrix(), rstd.vector(), gain.vector());
    });
  });
  add("rmsnorm/" + type + "/backward_gain", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<float> partial(chunks, h), dgain(h);
    measure(state, exec, moves<E>(0, static_cast<double>(chunks * h)),
            [&] { kernels::rmsnorm_backward_gain<float>(exec, dgain.vector(), partial.matrix(), true); });
  });
}

template <class E>
void add_swiglu() {
  const std::int64_t t = sizes().tokens, f = sizes().ffn;
  const auto cells = static_cast<double>(t * f);
  const std::string type = name_of_type<E>();
  add("swiglu/" + type + "/forward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> x(t, 2 * f), y(t, f);
    measure(state, exec, moves<E>(3 * cells),
            [&] { kernels::swiglu_forward<E>(exec, y.matrix(), x.matrix()); });
  });
  add("swiglu/" + type + "/backward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> x(t, 2 * f), dx(t, 2 * f), y(t, f), dy(t, f);
    measure(state, exec, moves<E>(6 * cells),
            [&] { kernels::swiglu_backward<E>(exec, dx.matrix(), y.matrix(), dy.matrix(), x.matrix()); });
  });
}

template <class E>
void add_rope() {
  const Sizes& s = sizes();
  const std::int64_t t = s.tokens, d = s.hidden / s.heads;
  const int turned = s.heads + s.kv_heads;
  const std::int64_t width = (s.heads + 2 * s.kv_heads) * d;
  add("rope/" + name_of_type<E>() + "/forward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> qkv(t, width);
    const Values<float> table(t, d);
    kernels::rope_table(exec, table.matrix());
    measure(state, exec, moves<E>(2.0 * static_cast<double>(t * turned * d), static_cast<double>(t * d)),
            [&] { kernels::rope_forward<E>(exec, qkv.matrix(), table.matrix(), turned); });
  });
}

template <class E>
void add_loss() {
  const std::int64_t v = sizes().vocab,
                     rows = std::min<std::int64_t>(sizes().tokens, (std::int64_t{1} << 26) / v);
  add("cross_entropy/" + name_of_type<E>(), [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> logits(rows, v);
    const Values<double> losses(rows);
    const Values<std::int32_t> targets(rows);  // below 100
    measure(state, exec, moves<E>(3.0 * static_cast<double>(rows * v)), [&] {
      kernels::cross_entropy<E>(exec, losses.vector(), logits.matrix(), targets.vector(), 1e-3F);
    });
  });
}

template <class E>
void add_embedding() {
  const std::int64_t t = sizes().tokens, h = sizes().hidden;
  add("embedding/" + name_of_type<E>() + "/forward", [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> table(100, h), x(t, h);
    const Values<std::int32_t> tokens(t);
    measure(state, exec, moves<E>(static_cast<double>(t * h)),  // the rows of 100 tokens stay in the cache
            [&] { kernels::embedding_forward<E>(exec, x.matrix(), table.matrix(), tokens.vector()); });
  });
}

template <class E>
void add_updates() {
  const std::int64_t n = sizes().hidden * sizes().ffn;
  const auto cells = static_cast<double>(n);
  add("adamw/" + name_of_type<E>(), [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> weights(n);
    const Values<float> master(n), m1(n), m2(n), gradient(n);
    measure(state, exec, moves<E>(cells, 7 * cells), [&] {
      kernels::adamw<E>(exec, weights.vector(), master.vector(), m1.vector(), m2.vector(), gradient.vector(),
                        {1e-3F, 0.9F, 0.95F, 1e-8F, 0.1F, 1.1F, 1.1F});
    });
  });
  add("add/" + name_of_type<E>(), [=](benchmark::State& state) {
    const ExecutionSpace exec;
    const Values<E> contribution(n);
    const Values<float> total(n);
    measure(state, exec, moves<E>(cells, 2 * cells),
            [&] { kernels::add<E>(exec, total.vector(), contribution.vector()); });
  });
}

template <class E>
void add_all() {
  add_norms<E>();
  add_swiglu<E>();
  add_rope<E>();
  add_loss<E>();
  add_embedding<E>();
  add_updates<E>();
}

}  // namespace

void add_layers() {
  add_all<float>();
  add_all<Bf16>();
}

}  // namespace minitaw::bench
