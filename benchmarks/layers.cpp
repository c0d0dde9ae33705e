// SPDX-License-Identifier: BSD-3-Clause
#include "layers.hpp"

#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"
#include "model/data.hpp"
#include "model/plan.hpp"
#include "values.hpp"

/// A function a layer: each kernel with its cost and a Problem.
namespace minitaw::bench {
namespace {
namespace reference = kernels::reference;
using Row = std::vector<double>;

Row zeros(std::int64_t count) {
  return Row(static_cast<std::size_t>(count));
}

Row sum_of(Row a, const Row& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

/// Sum of term(i) for i in [0, count).
double sum_over(std::int64_t count, const auto& term) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i)
    sum += term(i);
  return sum;
}

double real(std::int64_t count) {
  return static_cast<double>(count);
}

/// y [T, out] = x [T, in] w^T + beta y and its two backward products; beta 1 adds to the residual
/// stream. That of the weights adds to the total of the micro-batches before.
template <class E>
void add_linear(Kernels& kernels,
    const std::string& layer,
    std::int64_t tokens,
    std::int64_t in,
    std::int64_t out,
    float beta) {
  const std::string name = "linear/" + layer + "/" + model::name_of(dtype_of<E>),
                    shape = fmt::format("T={} in={} out={}", tokens, in, out);
  const double cells_x = real(tokens * in), cells_y = real(tokens * out), cells_w = real(in * out),
               e = bytes_of<E>, flops = 2 * real(tokens) * cells_w;
  const auto add = [&](const char* pass, double bytes, double near, std::function<Problem()> make) {
    kernels.push_back({name + pass, shape, dtype_of<E>, {flops, bytes}, near, std::move(make)});
  };
  add("/forward", e * (cells_x + cells_w + (1 + beta) * cells_y), tolerance<E>, [=] {
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
  add("/backward_input", e * (cells_x + cells_w + cells_y), tolerance<E>, [=] {
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
  add("/backward_weight", e * (cells_x + cells_y) + 8 * cells_w, tolerance<float>, [=] {
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

  [[nodiscard]] double error_of_y() const {
    return error_of_rows(y, [&](std::int64_t row) {
      return reference::rmsnorm_forward(x.given_row(row), gain.given_row(0));
    });
  }

  [[nodiscard]] double error_of_forward(bool copies) const {
    const double of_rstd = error_of_elements(rstd, [&](std::int64_t, std::int64_t row) {
      return reference::reciprocal_rms(x.given_row(row));
    });
    const double of_copy =
        copies ? error_of_rows(copy, [&](std::int64_t row) { return x.given_row(row); }) : 0;
    return std::max({error_of_y(), of_rstd, of_copy});
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
    Row unused = zeros(dx.cols());
    return sum_of(reference::rmsnorm_backward(
                      unused, dy.given_row(row), norm.x.given_row(row), norm.gain.given_row(0)),
        residual.given_row(row));
  }

  /// How rows belong to chunks is the kernel's own affair: only the sum over all of them is
  /// compared.
  [[nodiscard]] double error() const {
    Row total = zeros(dx.cols());
    for (std::int64_t chunk = 0; chunk < partial.rows(); ++chunk)
      total = sum_of(std::move(total), partial.row(chunk));
    const Row rstd = norm.rstd.row(0);
    Comparison of_gain;
    for (const std::int64_t col : samples(dx.cols(), 24))
      of_gain.add(total[static_cast<std::size_t>(col)], sum_over(dx.rows(), [&](auto t) {
        return dy.given(t, col) * norm.x.given(t, col) * rstd[static_cast<std::size_t>(t)];
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
  const double cells = real(rows * width), t = real(rows), h = real(width),
               sums = real(chunks * width), e = bytes_of<E>;
  const auto add = [&, shape = fmt::format("T={} H={}", rows, width)](
                       const char* pass, Cost cost, std::function<Problem()> make) {
    kernels.push_back({"rmsnorm/" + model::name_of(s.dtype) + pass,
        shape,
        s.dtype,
        cost,
        tolerance<E>,
        std::move(make)});
  };
  for (const bool copies : {false, true})
    add(copies ? "/forward_copy" : "/forward",
        {4 * cells, e * ((copies ? 3 : 2) * cells + h) + 4 * t},
        [=] {
          const Norm<E> norm(rows, width);
          return Problem{[=] { norm.y.poison(), norm.rstd.poison(), norm.copy.poison(); },
              [=] { norm.forward(copies); },
              [=] { return norm.error_of_forward(copies); }};
        });
  add("/backward", {11 * cells, e * (4 * cells + h) + 4 * (t + sums)}, [=] {
    const NormBackward<E> b(rows, width);
    return Problem{
        [=] { b.dx.poison(), b.partial.poison(); }, [=] { b.run(); }, [=] { return b.error(); }};
  });
  add("/backward_gain", {sums, 4 * (sums + 2 * h)}, [=] {
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
  kernels.back().shape = fmt::format("chunks={} H={}", chunks, width);
  kernels.back().tolerance = tolerance<float>;
}

template <class E>
void add_swiglu(Kernels& kernels, const Shape& s) {
  const std::int64_t rows = s.tokens(), width = s.ffn;
  const std::string name = "swiglu/" + model::name_of(s.dtype),
                    shape = fmt::format("T={} F={}", rows, width);
  const double cells = real(rows * width);
  const auto error_of_y = [=](const Values<E>& y, const Values<E>& x) {
    return error_of_rows(
        y, [&](std::int64_t row) { return reference::swiglu_forward(x.given_row(row), width); });
  };
  add_kernel(kernels,
      name + "/forward",
      shape,
      s.dtype,
      {5 * cells, bytes_of<E> * 3 * cells},
      tolerance<E>,
      [=] {
        const Values<E> x(rows, 2 * width, {.scale = 8}), y(rows, width);
        return Problem{[=] { y.poison(); },
            [=] { kernels::swiglu_forward<E>(ExecutionSpace(), y.matrix(), x.matrix()); },
            [=] { return error_of_y(y, x); }};
      });
  add_kernel(kernels,
      name + "/backward",
      shape,
      s.dtype,
      {12 * cells, bytes_of<E> * 6 * cells},
      tolerance<E>,
      [=] {
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
  const double turned = real(s.tokens() * heads * s.head_dim()), table = real(s.seq * s.head_dim());
  const std::string shape = fmt::format(
      "B={} S={} heads={}+{} d={}", s.micro_batch, s.seq, s.heads, s.kv_heads, s.head_dim());
  for (const int direction : {1, -1})
    add_kernel(kernels,
        "rope/" + model::name_of(s.dtype) + (direction > 0 ? "/forward" : "/backward"),
        shape,
        s.dtype,
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
                real(row % s.seq) * direction);
            return x;
          };
          return Problem{[=] { qkv.reset(); }, run, [=] { return error_of_rows(qkv, expected); }};
        });
}

template <class E>
struct Loss {
  Loss(std::int64_t rows, std::int64_t vocab)
      : logits(rows, vocab, {.scale = 8}),
        losses(1, rows),
        targets(1, rows, {.scale = static_cast<float>(vocab)}) {}

  void run() const {
    kernels::cross_entropy<E>(
        ExecutionSpace(), losses.vector(), logits.matrix(), targets.vector(), scale);
  }

  /// The one gradient of a row that is near -1 would hide all others: it is compared apart from
  /// them.
  [[nodiscard]] double error() const {
    Comparison of_losses, at_targets, elsewhere;
    const Row found_losses = losses.row(0);
    for (const std::int64_t row : samples(logits.rows(), 8)) {
      const std::int32_t target[] = {static_cast<std::int32_t>(targets.given(0, row))};
      Row expected = logits.given_row(row);
      const Row found = logits.row(row);
      const double loss = reference::cross_entropy(expected, target, double{scale});
      for (std::size_t i = 0; i < found.size(); ++i)
        (std::cmp_equal(i, target[0]) ? at_targets : elsewhere).add(found[i], expected[i]);
      of_losses.add(found_losses[static_cast<std::size_t>(row)], loss);
    }
    return std::max(
        {of_losses.error(), at_targets.error(), logits.cols() > 1 ? elsewhere.error() : 0});
  }

  static constexpr float scale = 1e-3F;
  Values<E> logits;
  Values<double> losses;
  Values<std::int32_t> targets;
};

/// The step takes the loss in slices of tokens, so that not all logits exist at a time.
template <class E>
void add_loss(Kernels& kernels, const Shape& s) {
  const std::int64_t rows = model::loss_tile(s), vocab = s.vocab;
  const double t = real(rows), cells = real(rows * vocab);
  add_kernel(kernels,
      "cross_entropy/" + model::name_of(s.dtype),
      fmt::format("T={} V={}", rows, vocab),
      s.dtype,
      {5 * cells, bytes_of<E> * 2 * cells + (8 + 4) * t},
      tolerance<E>,
      [=] {
        const Loss<E> loss(rows, vocab);
        return Problem{[=] { loss.logits.reset(), loss.losses.poison(); },
            [=] { loss.run(); },
            [=] { return loss.error(); }};
      });
  add_kernel(kernels, "sum_losses", fmt::format("T={}", rows), s.dtype, {t, 8 * t}, 1e-12, [=] {
    const Values<double> losses(1, rows), total(1, 1);
    const auto run = [=] {
      kernels::sum_losses(ExecutionSpace(), total.vector().data(), losses.vector(), 0.5);
    };
    const auto expected = [=](std::int64_t, std::int64_t) {
      return total.given(0) + 0.5 * sum_over(rows, [&](auto row) { return losses.given(0, row); });
    };
    return Problem{[=] { total.reset(); }, run, [=] { return error_of_elements(total, expected); }};
  });
}

/// Tokens of a micro-batch, and their positions by token, as the step prepares them.
struct Tokens {
  using View = Kokkos::View<std::int32_t*, kernels::MemorySpace>;

  explicit Tokens(const Shape& s) : values(1, s.tokens(), {.scale = static_cast<float>(s.vocab)}) {
    std::vector<std::int32_t> given, by_token(static_cast<std::size_t>(count())),
        begins(static_cast<std::size_t>(model::most_segments(s.vocab, count())));
    for (std::int64_t t = 0; t < count(); ++t)
      given.push_back(static_cast<std::int32_t>(at(t)));
    begins.resize(model::sort_positions(by_token, begins, given, s.vocab));
    positions = on_device(by_token);
    segments = on_device(begins);
  }

  static View on_device(const std::vector<std::int32_t>& list) {
    const Kokkos::View<const std::int32_t*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> host(
        list.data(), list.size());
    const View device(
        Kokkos::view_alloc("benchmark order", Kokkos::WithoutInitializing), list.size());
    Kokkos::deep_copy(device, host);
    return device;
  }

  [[nodiscard]] std::int64_t at(std::int64_t t) const {
    return static_cast<std::int64_t>(values.given(0, t));
  }

  [[nodiscard]] std::int64_t count() const { return values.cols(); }

  Values<std::int32_t> values;
  View positions, segments;
};

/// How many different ones there are among T random tokens of V.
double expected_distinct(double tokens, double vocab) {
  return vocab * -std::expm1(tokens * std::log1p(-1 / std::max(vocab, 1 + 1e-9)));
}

/// Rows of the gradient of tokens that occur, and some of any.
template <class E>
double error_of_table(const Tokens& tokens, const Values<float>& dtable, const Values<E>& dx) {
  Comparison found;
  const auto compare = [&](std::int64_t token) {
    Row sum = dtable.given_row(token);
    for (std::int64_t t = 0; t < tokens.count(); ++t)
      if (tokens.at(t) == token)
        sum = sum_of(std::move(sum), dx.given_row(t));
    found.add(dtable.row(token), sum);
  };
  for (const std::int64_t t : samples(tokens.count(), 8))
    compare(tokens.at(t));
  for (const std::int64_t token : samples(dtable.rows(), 4))
    compare(token);
  return found.error();
}

template <class E>
void add_embedding(Kernels& kernels, const Shape& s) {
  const double t = real(s.tokens()), h = real(s.hidden),
               distinct = expected_distinct(t, real(s.vocab)), e = bytes_of<E>;
  const std::string name = "embedding/" + model::name_of(s.dtype),
                    shape = fmt::format("T={} H={} V={}", s.tokens(), s.hidden, s.vocab);
  add_kernel(kernels,
      name + "/forward",
      shape,
      s.dtype,
      {0, e * h * (t + distinct) + 4 * t},
      tolerance<E>,
      [=] {
        const Tokens tokens(s);
        const Values<E> table(s.vocab, s.hidden), x(s.tokens(), s.hidden);
        const auto run = [=] {
          kernels::embedding_forward<E>(
              ExecutionSpace(), x.matrix(), table.matrix(), tokens.values.vector());
        };
        const auto expected = [=](std::int64_t row) { return table.given_row(tokens.at(row)); };
        return Problem{[=] { x.poison(); }, run, [=] { return error_of_rows(x, expected); }};
      });
  add_kernel(kernels,
      name + "/backward",
      shape,
      s.dtype,
      {t * h, e * h * t + 8 * h * distinct + 4 * (t + 2 * distinct)},
      tolerance<float>,
      [=] {
        const Tokens tokens(s);
        const Values<E> dx(s.tokens(), s.hidden);
        const Values<float> dtable(s.vocab, s.hidden);
        const auto run = [=] {
          kernels::embedding_backward<E>(ExecutionSpace(),
              dtable.matrix(),
              dx.matrix(),
              tokens.values.vector(),
              tokens.positions,
              tokens.segments);
        };
        return Problem{
            [=] { dtable.reset(); }, run, [=] { return error_of_table(tokens, dtable, dx); }};
      });
}

/// The state of rows x cols weights, a first step of a large learning rate ahead. In fp32 the
/// weights are their own master, as in training.
template <class E>
struct AdamW {
  AdamW(std::int64_t rows, std::int64_t cols)
      : weights(own_master ? 1 : rows, own_master ? 1 : cols),
        master(rows, cols),
        m1(rows, cols),
        m2(rows, cols, {.scale = 1, .offset = 0.25F}),
        gradient(rows, cols) {}

  void reset() const { weights.poison(), master.reset(), m1.reset(), m2.reset(); }

  void run() const {
    kernels::Vector<E> rounded;
    if constexpr (own_master)
      rounded = master.vector();
    else
      rounded = weights.vector();
    kernels::adamw<E>(ExecutionSpace(),
        rounded,
        master.vector(),
        m1.vector(),
        m2.vector(),
        gradient.vector(),
        settings,
        1);
  }

  /// Of w, m1 and m2 (0, 1, 2).
  [[nodiscard]] double error_of(const auto& values, int which) const {
    return error_of_rows(values, [&](std::int64_t row) {
      Row state[] = {master.given_row(row), m1.given_row(row), m2.given_row(row)};
      reference::adamw(state[0], state[1], state[2], gradient.given_row(row), 1, settings, 1);
      return state[which];
    });
  }

  [[nodiscard]] double error() const {
    return std::max({error_of(master, 0),
        own_master ? 0 : error_of(weights, 0),
        error_of(m1, 1),
        error_of(m2, 2)});
  }

  static constexpr bool own_master = std::is_same_v<E, float>;
  static constexpr kernels::AdamW settings{.learning_rate = 0.1F};
  Values<E> weights;
  Values<float> master, m1, m2, gradient;
};

/// Over the weights of the four linear layers of a block.
template <class E>
void add_updates(Kernels& kernels, const Shape& s) {
  const std::int64_t cols = s.hidden, rows = model::block_matmul_parameters(s) / cols;
  const double n = real(rows * cols), rounded = AdamW<E>::own_master ? 0 : bytes_of<E>;
  const std::string shape = fmt::format("n={}", rows * cols), type = model::name_of(s.dtype);
  add_kernel(kernels,
      "adamw/" + type,
      shape,
      s.dtype,
      {16 * n, (7 * 4 + rounded) * n},
      std::max(tolerance<float>, rounded > 0 ? tolerance<E> : 0),
      [=] {
        const AdamW<E> a(rows, cols);
        return Problem{[=] { a.reset(); }, [=] { a.run(); }, [=] { return a.error(); }};
      });
  add_kernel(
      kernels, "add/" + type, shape, s.dtype, {n, (8 + bytes_of<E>)*n}, tolerance<float>, [=] {
        const Values<float> total(rows, cols);
        const Values<E> more(rows, cols);
        const auto expected = [=](std::int64_t row) {
          return sum_of(total.given_row(row), more.given_row(row));
        };
        return Problem{[=] { total.reset(); },
            [=] { kernels::add<E>(ExecutionSpace(), total.vector(), more.vector(), true); },
            [=] { return error_of_rows(total, expected); }};
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
  add([&]<class E>(E, const Shape& shape) { add_loss<E>(all, shape); });
  add([&]<class E>(E, const Shape& shape) { add_embedding<E>(all, shape); });
  add([&]<class E>(E, const Shape& shape) { add_updates<E>(all, shape); });
  return distinct(std::move(all));
}
}  // namespace minitaw::bench
