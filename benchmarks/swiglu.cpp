#include "kernels/kernels.hpp"

#include <fmt/format.h>

#include "families.hpp"
#include "kernels/reference.hpp"
#include "model/layout.hpp"
#include "values.hpp"

namespace minitaw::bench {

namespace {

namespace reference = kernels::reference;

template <class E>
std::vector<double> expected_y(const Values<E>& x, std::int64_t row) {
  std::vector<double> y(static_cast<std::size_t>(x.cols() / 2));
  reference::swiglu_forward(y, x.given_row(row), 1, x.cols() / 2);
  return y;
}

template <class E>
Problem forward(std::int64_t rows, std::int64_t width) {
  const ExecutionSpace exec;
  const Values<E> x(rows, 2 * width, {.scale = 8}), y(rows, width);
  return {.reset = [=] { y.poison(); },
          .run = [=] { kernels::swiglu_forward<E>(exec, y.matrix(), x.matrix()); },
          .error = [=] { return error_of_rows(y, [&](std::int64_t row) { return expected_y(x, row); }); }};
}

template <class E>
Problem backward(std::int64_t rows, std::int64_t width) {
  const ExecutionSpace exec;
  const Values<E> x(rows, 2 * width, {.scale = 8}), dx(rows, 2 * width), y(rows, width), dy(rows, width);
  const auto expected_dx = [=](std::int64_t row) {
    std::vector<double> expected(static_cast<std::size_t>(2 * width));
    reference::swiglu_backward(expected, dy.given_row(row), x.given_row(row), 1, width);
    return expected;
  };
  return {.reset = [=] { dx.poison(), y.poison(); },
          .run = [=] { kernels::swiglu_backward<E>(exec, dx.matrix(), y.matrix(), dy.matrix(), x.matrix()); },
          .error =
              [=] {
                return std::max(error_of_rows(dx, expected_dx),
                                error_of_rows(y, [&](std::int64_t row) { return expected_y(x, row); }));
              }};
}

template <class E>
void add(Kernels& kernels, std::int64_t rows, std::int64_t width) {
  constexpr model::Dtype dtype = dtype_of<E>;
  const std::string name = "swiglu/" + model::name_of(dtype), shape = fmt::format("T={} F={}", rows, width);
  const auto cells = static_cast<double>(rows * width);
  kernels.push_back(
      {name + "/forward", shape, dtype, {5 * cells, bytes_of<E> * 3 * cells}, tolerance<E>, [=] {
         return forward<E>(rows, width);
       }});
  kernels.push_back(
      {name + "/backward", shape, dtype, {12 * cells, bytes_of<E> * 6 * cells}, tolerance<E>, [=] {
         return backward<E>(rows, width);
       }});
}

}  // namespace

void add_swiglu(Kernels& kernels, const Shape& shape) {
  model::with_element(shape.dtype, [&]<class E>(E) { add<E>(kernels, shape.tokens(), shape.ffn[0]); });
}

}  // namespace minitaw::bench
