#include "kernels/kernels.hpp"

#include <fmt/format.h>

#include "families.hpp"
#include "kernels/reference.hpp"
#include "model/layout.hpp"
#include "model/plan.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

namespace reference = kernels::reference;

/// x [T, H] with its gain and the statistics of its rows.
template <class E>
struct Norm {
  Norm(std::int64_t rows, std::int64_t width)
      : x(rows, width), y(rows, width), gain(1, width), rstd(1, rows) {
    run_forward();
    Kokkos::fence();
  }
  void run_forward() const {
    kernels::rmsnorm_forward<E>(exec, y.matrix(), rstd.vector(), {}, x.matrix(), gain.vector());
  }
  [[nodiscard]] std::vector<double> expected(std::int64_t row) const {
    std::vector<double> result(static_cast<std::size_t>(x.cols()));
    reference::rmsnorm_forward(result, x.given_row(row), gain.given_row(0), 1, x.cols());
    return result;
  }
  [[nodiscard]] double error_of_y() const {
    return error_of_rows(y, [&](std::int64_t row) { return expected(row); });
  }
  [[nodiscard]] double error_of_rstd() const {
    return error_of_elements(
        rstd, [&](std::int64_t, std::int64_t row) { return reference::reciprocal_rms(x.given_row(row)); });
  }

  ExecutionSpace exec;
  Values<E> x, y, gain;
  Values<float> rstd;
};

template <class E>
Problem forward(std::int64_t rows, std::int64_t width) {
  const Norm<E> norm(rows, width);
  return {.reset = [=] { norm.y.poison(), norm.rstd.poison(); },
          .run = [=] { norm.run_forward(); },
          .error = [=] { return std::max(norm.error_of_y(), norm.error_of_rstd()); }};
}

template <class E>
Problem forward_copy(std::int64_t rows, std::int64_t width) {
  const Norm<E> norm(rows, width);
  const Values<E> copy(rows, width);
  const auto run = [=] {
    kernels::rmsnorm_forward<E>(norm.exec, norm.y.matrix(), norm.rstd.vector(), copy.matrix(),
                                norm.x.matrix(), norm.gain.vector());
  };
  const auto error = [=] {
    const double of_copy = error_of_rows(copy, [&](std::int64_t row) { return norm.x.given_row(row); });
    return std::max({norm.error_of_y(), norm.error_of_rstd(), of_copy});
  };
  return {.reset = [=] { norm.y.poison(), norm.rstd.poison(), copy.poison(); }, .run = run, .error = error};
}

template <class E>
Problem rebuild(std::int64_t rows, std::int64_t width) {
  const Norm<E> norm(rows, width);
  return {.reset = [=] { norm.y.poison(); },
          .run =
              [=] {
                kernels::rmsnorm_rebuild<E>(norm.exec, norm.y.matrix(), norm.x.matrix(), norm.rstd.vector(),
                                            norm.gain.vector());
              },
          .error = [=] { return norm.error_of_y(); }};
}

template <class E>
struct Backward {
  Backward(std::int64_t rows, std::int64_t width)
      : norm(rows, width), dy(rows, width), residual(rows, width), dx(rows, width),
        partial(kernels::rmsnorm_chunks(rows), width) {}

  void run() const {
    kernels::rmsnorm_backward<E>(norm.exec, dx.matrix(), partial.matrix(), dy.matrix(), residual.matrix(),
                                 norm.x.matrix(), norm.rstd.vector(), norm.gain.vector());
  }
  [[nodiscard]] std::vector<double> expected(std::int64_t row) const {
    std::vector<double> result(static_cast<std::size_t>(dx.cols())), unused(result);
    const std::vector<double> through = residual.given_row(row);
    reference::rmsnorm_backward(result, unused, dy.given_row(row), norm.x.given_row(row),
                                norm.gain.given_row(0), 1, dx.cols());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] += through[i];
    return result;
  }
  /// How rows belong to chunks is the kernel's own affair: only the sum over all of them is compared.
  [[nodiscard]] double error_of_gain() const {
    std::vector<double> total(static_cast<std::size_t>(dx.cols()));
    for (std::int64_t chunk = 0; chunk < partial.rows(); ++chunk) {
      const std::vector<double> part = partial.row(chunk);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += part[i];
    }
    const std::vector<double> rstd = norm.rstd.row(0);
    Comparison found;
    for (const std::int64_t col : samples(dx.cols(), 24)) {
      double sum = 0;
      for (std::int64_t t = 0; t < dx.rows(); ++t)
        sum += dy.given(t, col) * norm.x.given(t, col) * rstd[static_cast<std::size_t>(t)];
      found.add(total[static_cast<std::size_t>(col)], sum);
    }
    return found.error();
  }

  Norm<E> norm;
  Values<E> dy, residual, dx;
  Values<float> partial;
};

template <class E>
Problem backward(std::int64_t rows, std::int64_t width) {
  const Backward<E> b(rows, width);
  return {.reset = [=] { b.dx.poison(), b.partial.poison(); },
          .run = [=] { b.run(); },
          .error =
              [=] {
                const auto expected = [&](std::int64_t row) { return b.expected(row); };
                return std::max(error_of_rows(b.dx, expected), b.error_of_gain());
              }};
}

Problem backward_gain(std::int64_t chunks, std::int64_t width) {
  const ExecutionSpace exec;
  const Values<float> partial(chunks, width), dgain(1, width);
  return {.reset = [=] { dgain.reset(); },
          .run = [=] { kernels::rmsnorm_backward_gain<float>(exec, dgain.vector(), partial.matrix(), true); },
          .error =
              [=] {
                return error_of_elements(dgain, [&](std::int64_t, std::int64_t col) {
                  double sum = dgain.given(0, col);
                  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial.given(chunk, col);
                  return sum;
                });
              }};
}

template <class E>
void add(Kernels& kernels, std::int64_t rows, std::int64_t width) {
  constexpr model::Dtype dtype = dtype_of<E>;
  const std::string name = "rmsnorm/" + model::name_of(dtype), shape = fmt::format("T={} H={}", rows, width);
  const std::int64_t chunks = kernels::rmsnorm_chunks(rows);
  const auto cells = static_cast<double>(rows * width), t = static_cast<double>(rows),
             h = static_cast<double>(width), sums = static_cast<double>(chunks * width);
  const double e = bytes_of<E>;
  kernels.push_back(
      {name + "/forward", shape, dtype, {4 * cells, e * (2 * cells + h) + 4 * t}, tolerance<E>, [=] {
         return forward<E>(rows, width);
       }});
  kernels.push_back(
      {name + "/forward_copy", shape, dtype, {4 * cells, e * (3 * cells + h) + 4 * t}, tolerance<E>, [=] {
         return forward_copy<E>(rows, width);
       }});
  kernels.push_back(
      {name + "/rebuild", shape, dtype, {2 * cells, e * (2 * cells + h) + 4 * t}, tolerance<E>, [=] {
         return rebuild<E>(rows, width);
       }});
  kernels.push_back({name + "/backward",
                     shape,
                     dtype,
                     {11 * cells, e * (4 * cells + h) + 4 * (t + sums)},
                     tolerance<E>,
                     [=] { return backward<E>(rows, width); }});
  kernels.push_back({name + "/backward_gain",
                     fmt::format("chunks={} H={}", chunks, width),
                     dtype,
                     {sums, 4 * (sums + 2 * h)},
                     tolerance<float>,
                     [=] { return backward_gain(chunks, width); }});
}

}  // namespace

void add_rmsnorm(Kernels& kernels, const Shape& shape) {
  model::with_element(shape.dtype, [&]<class E>(E) { add<E>(kernels, shape.tokens(), shape.hidden); });
}

}  // namespace minitaw::bench
