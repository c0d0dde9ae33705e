// SPDX-License-Identifier: BSD-3-Clause
#include "layers.hpp"

#include <fmt/format.h>

#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"
#include "model/plan.hpp"
#include "values.hpp"

/// A function a layer of the blocks: each kernel with its cost and a Problem.
namespace minitaw::bench {
namespace {
namespace reference = kernels::reference;

/// y [T, out] = x [T, in] w^T + beta y and its two backward products; beta 1 adds to the residual
/// stream. That of the weights adds to the total of the micro-batches before.
template <class E>
void add_linear(Kernels& kernels,
    const std::string& layer,
    std::int64_t tokens,
    std::int64_t in,
    std::int64_t out,
    float beta) {
  const Layer linear{kernels,
      "linear/" + layer + "/" + model::name_of(dtype_of<E>),
      fmt::format("T={} in={} out={}", tokens, in, out),
      dtype_of<E>};
  const double cells_x = tokens * in, cells_y = tokens * out, cells_w = in * out, e = bytes_of<E>,
               flops = 2 * tokens * cells_w;
  linear.add(
      "/forward", {flops, e * (cells_x + cells_w + (1 + beta) * cells_y)}, tolerance<E>, [=] {
        const Values<E> x(tokens, in), w(out, in), y(tokens, out);
        return Problem{[=] { beta == 0 ? y.poison() : y.reset(); },
            [=] {
              kernels::linear_forward(ExecutionSpace(), y.matrix(), x.matrix(), w.matrix(), beta);
            },
            [=] {
              return error_of_elements(y, [&](std::int64_t t, std::int64_t o) {
                return beta * y.given(t, o) +
                       sum_over(in, [&](auto i) { return x.given(t, i) * w.given(o, i); });
              });
            }};
      });
  linear.add("/backward_input", {flops, e * (cells_x + cells_w + cells_y)}, tolerance<E>, [=] {
    const Values<E> dy(tokens, out), w(out, in), dx(tokens, in);
    return Problem{[=] { dx.poison(); },
        [=] {
          kernels::linear_backward_input(ExecutionSpace(), dx.matrix(), dy.matrix(), w.matrix());
        },
        [=] {
          return error_of_elements(dx, [&](std::int64_t t, std::int64_t i) {
            return sum_over(out, [&](auto o) { return dy.given(t, o) * w.given(o, i); });
          });
        }};
  });
  linear.add(
      "/backward_weight", {flops, e * (cells_x + cells_y) + 8 * cells_w}, tolerance<float>, [=] {
        const Values<E> dy(tokens, out), x(tokens, in);
        const Values<float> dw(out, in);
        return Problem{[=] { dw.reset(); },
            [=] {
              const kernels::Matrix<const E> slope = dy.matrix();
              kernels::linear_backward_weight<float, E>(
                  ExecutionSpace(), dw.matrix(), slope, x.matrix(), true);
            },
            [=] {
              return error_of_elements(dw, [&](std::int64_t o, std::int64_t i) {
                return dw.given(o, i) +
                       sum_over(tokens, [&](auto t) { return dy.given(t, o) * x.given(t, i); });
              });
            }};
      });
}

template <class E>
void add_linears(Kernels& kernels, const Shape& s) {
  const std::int64_t t = s.tokens(), h = s.hidden, f = s.ffn;
  add_linear<E>(kernels, "wqkv", t, h, s.qkv(), 0);
  add_linear<E>(kernels, "wo", t, s.heads * s.head_dim(), h, 1);
  add_linear<E>(kernels, "w13", t, h, 2 * f, 0);
  add_linear<E>(kernels, "w2", t, f, h, 1);
  add_linear<E>(kernels, "head", model::loss_tile(s), h, s.vocab, 0);
}

/// x [T, H] with its gain and the statistics of its rows.
template <class E>
struct Norm {
  Norm(std::int64_t rows, std::int64_t width)
      : x(rows, width),
        y(rows, width),
        copy(rows, width),
        gain(1, width),
        rstd(1, rows) {
    forward(false);
    Kokkos::fence();
  }

  void forward(bool copies) const {
    kernels::rmsnorm_forward<E>(ExecutionSpace(),
        y.matrix(),
        rstd.vector(),
        copies ? copy.matrix() : kernels::Matrix<E>(),
        x.matrix(),
        gain.vector());
  }

  [[nodiscard]] double error_of_forward(bool copies) const {
    const double of_y = error_of_rows(y, [&](std::int64_t row) {
      return reference::rmsnorm_forward(x.given_row(row), gain.given_row(0));
    });
    const double of_rstd = error_of_elements(rstd, [&](std::int64_t, std::int64_t row) {
      return reference::reciprocal_rms(x.given_row(row));
    });
    const double of_copy =
        copies ? error_of_rows(copy, [&](std::int64_t row) { return x.given_row(row); }) : 0;
    return std::max({of_y, of_rstd, of_copy});
  }

  Values<E> x, y, copy, gain;
  Values<float> rstd;
};

template <class E>
struct NormBackward {
  NormBackward(std::int64_t rows, std::int64_t width)
      : norm(rows, width),
        dy(rows, width),
        residual(rows, width),
        dx(rows, width),
        partial(kernels::rmsnorm_chunks(rows), width) {}

  void run() const {
    kernels::rmsnorm_backward<E>(ExecutionSpace(),
        dx.matrix(),
        partial.matrix(),
        dy.matrix(),
        residual.matrix(),
        norm.x.matrix(),
        norm.rstd.vector(),
        norm.gain.vector());
  }

  [[nodiscard]] Row expected(std::int64_t row) const {
    Row unused(dx.cols());
    return sum_of(reference::rmsnorm_backward(
                      unused, dy.given_row(row), norm.x.given_row(row), norm.gain.given_row(0)),
        residual.given_row(row));
  }

  /// How rows belong to chunks is the kernel's own affair: only the sum over all of them is
  /// compared.
  [[nodiscard]] double error() const {
    Row total(dx.cols());
    for (std::int64_t chunk = 0; chunk < partial.rows(); ++chunk)
      total = sum_of(std::move(total), partial.row(chunk));
    const Row rstd = norm.rstd.row(0);
    Comparison of_gain;
    for (const std::int64_t col : samples(dx.cols(), 24))
      of_gain.add(total[col], sum_over(dx.rows(), [&](auto t) {
        return dy.given(t, col) * norm.x.given(t, col) * rstd[t];
      }));
    return std::max(
        error_of_rows(dx, [&](std::int64_t row) { return expected(row); }), of_gain.error());
  }

  Norm<E> norm;
  Values<E> dy, residual, dx;
  Values<float> partial;
};

template <class E>
void add_rmsnorm(Kernels& kernels, const Shape& s) {
  const std::int64_t rows = s.tokens(), width = s.hidden, chunks = kernels::rmsnorm_chunks(rows);
  const double cells = rows * width, t = rows, h = width, sums = chunks * width, e = bytes_of<E>;
  const std::string name = "rmsnorm/" + model::name_of(s.dtype);
  const Layer norms{kernels, name, fmt::format("T={} H={}", rows, width), s.dtype};
  for (const bool copies : {false, true})
    norms.add(copies ? "/forward_copy" : "/forward",
        {4 * cells, e * ((copies ? 3 : 2) * cells + h) + 4 * t},
        tolerance<E>,
        [=] {
          const Norm<E> norm(rows, width);
          return Problem{[=] { norm.y.poison(), norm.rstd.poison(), norm.copy.poison(); },
              [=] { norm.forward(copies); },
              [=] { return norm.error_of_forward(copies); }};
        });
  norms.add("/backward", {11 * cells, e * (4 * cells + h) + 4 * (t + sums)}, tolerance<E>, [=] {
    const NormBackward<E> b(rows, width);
    return Problem{
        [=] { b.dx.poison(), b.partial.poison(); }, [=] { b.run(); }, [=] { return b.error(); }};
  });
  const Layer gains{kernels, name, fmt::format("chunks={} H={}", chunks, width), s.dtype};
  gains.add("/backward_gain", {sums, 4 * (sums + 2 * h)}, tolerance<float>, [=] {
    const Values<float> partial(chunks, width), dgain(1, width);
    return Problem{[=] { dgain.reset(); },
        [=] {
          kernels::rmsnorm_backward_gain<float>(
              ExecutionSpace(), dgain.vector(), partial.matrix(), true);
        },
        [=] {
          return error_of_elements(dgain, [&](std::int64_t, std::int64_t col) {
            return dgain.given(0, col) +
                   sum_over(chunks, [&](auto chunk) { return partial.given(chunk, col); });
          });
        }};
  });
}

template <class E>
void add_swiglu(Kernels& kernels, const Shape& s) {
  const std::int64_t rows = s.tokens(), width = s.ffn;
  const Layer layer{
      kernels, "swiglu/" + model::name_of(s.dtype), fmt::format("T={} F={}", rows, width), s.dtype};
  const double cells = rows * width;
  const auto error_of_y = [=](const Values<E>& y, const Values<E>& x) {
    return error_of_rows(
        y, [&](std::int64_t row) { return reference::swiglu_forward(x.given_row(row), width); });
  };
  layer.add("/forward", {5 * cells, bytes_of<E> * 3 * cells}, tolerance<E>, [=] {
    const Values<E> x(rows, 2 * width, {.scale = 8}), y(rows, width);
    return Problem{[=] { y.poison(); },
        [=] { kernels::swiglu_forward<E>(ExecutionSpace(), y.matrix(), x.matrix()); },
        [=] { return error_of_y(y, x); }};
  });
  layer.add("/backward", {12 * cells, bytes_of<E> * 6 * cells}, tolerance<E>, [=] {
    const Values<E> x(rows, 2 * width, {.scale = 8}), dx(rows, 2 * width), y(rows, width),
        dy(rows, width);
    const auto run = [=] {
      kernels::swiglu_backward<E>(
          ExecutionSpace(), dx.matrix(), y.matrix(), dy.matrix(), x.matrix());
    };
    const auto expected = [=](std::int64_t row) {
      return reference::swiglu_backward(dy.given_row(row), x.given_row(row), width);
    };
    return Problem{[=] { dx.poison(), y.poison(); },
        run,
        [=] { return std::max(error_of_rows(dx, expected), error_of_y(y, x)); }};
  });
}

template <class E>
void add_rope(Kernels& kernels, const Shape& s) {
  const int heads = s.heads + s.kv_heads;
  const double turned = s.tokens() * heads * s.head_dim(), table = s.seq * s.head_dim();
  const Layer layer{kernels,
      "rope/" + model::name_of(s.dtype),
      fmt::format(
          "B={} S={} heads={}+{} d={}", s.micro_batch, s.seq, s.heads, s.kv_heads, s.head_dim()),
      s.dtype};
  for (const int direction : {1, -1})
    layer.add(direction > 0 ? "/forward" : "/backward",
        {3 * turned, bytes_of<E> * 2 * turned + 4 * table},
        tolerance<E>,
        [=] {
          const Values<E> qkv(s.tokens(), s.qkv());
          const Values<float> angles(s.seq, s.head_dim());
          kernels::rope_table(ExecutionSpace(), angles.matrix(), {{0, static_cast<int>(s.seq), 0}});
          Kokkos::fence();
          const auto run = [=] {
            kernels::rope<E>(ExecutionSpace(),
                qkv.matrix(),
                angles.matrix(),
                heads,
                static_cast<float>(direction));
          };
          const auto expected = [=](std::int64_t row) {  // values stay as they are
            Row x = qkv.given_row(row);
            reference::rope_token(std::span(x).first(heads * s.head_dim()),
                static_cast<int>(s.head_dim()),
                row % s.seq * direction);
            return x;
          };
          return Problem{[=] { qkv.reset(); }, run, [=] { return error_of_rows(qkv, expected); }};
        });
}

}  // namespace

Kernels kernels_of(const std::vector<Shape>& shapes) {
  Kernels all;
  const auto add = [&](const auto& layer) {
    for (const Shape& shape : shapes)
      model::with_element(shape.dtype, [&](auto type) { layer(type, shape); });
  };
  add([&]<class E>(E, const Shape& shape) { add_linears<E>(all, shape); });
  for (const Shape& shape : shapes)
    add_attention(all, shape);
  add([&]<class E>(E, const Shape& shape) { add_rmsnorm<E>(all, shape); });
  add([&]<class E>(E, const Shape& shape) { add_swiglu<E>(all, shape); });
  add([&]<class E>(E, const Shape& shape) { add_rope<E>(all, shape); });
  for (const auto add_end : {add_loss, add_embedding, add_updates})
    for (const Shape& shape : shapes)
      add_end(all, shape);
  return distinct(std::move(all));
}
}  // namespace minitaw::bench
