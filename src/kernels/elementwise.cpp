#include "kernels/kernels.hpp"

#include <algorithm>

#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

KOKKOS_INLINE_FUNCTION float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

template <class E, int n>
struct SwigluForward {
  E* y;
  const E* x;
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const E* const gate = x + std::int64_t{team.league_rank()} * 2 * width;
    const E* const up = gate + width;
    E* const out = y + std::int64_t{team.league_rank()} * width;
    row_for(team, width / n, [=](int i) {
      const Floats<n> g = load_pack<n>(gate, i), u = load_pack<n>(up, i);
      Floats<n> result;
      for (int j = 0; j < n; ++j) result[j] = g[j] * sigmoid(g[j]) * u[j];
      store_pack<n>(out, i, result);
    });
  }
};

template <class E, int n>
struct SwigluBackward {
  E* dx;
  E* y;
  const E* dy;
  const E* x;
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const std::int64_t row = std::int64_t{team.league_rank()} * width;
    const E* const gate = x + 2 * row;
    const E* const up = gate + width;
    const E* const slope = dy + row;
    E* const dgate = dx + 2 * row;
    E* const dup = dgate + width;
    E* const out = y + row;
    row_for(team, width / n, [=](int i) {
      const Floats<n> g = load_pack<n>(gate, i), u = load_pack<n>(up, i), d = load_pack<n>(slope, i);
      Floats<n> of_gate, of_up, product;
      for (int j = 0; j < n; ++j) {
        const float s = sigmoid(g[j]);
        of_gate[j] = d[j] * u[j] * s * (1.0F + g[j] * (1.0F - s));
        of_up[j] = d[j] * g[j] * s;
        product[j] = g[j] * s * u[j];
      }
      store_pack<n>(dgate, i, of_gate);
      store_pack<n>(dup, i, of_up);
      store_pack<n>(out, i, product);
    });
  }
};

}  // namespace

template <class E>
void swiglu_forward(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x) {
  const int width = static_cast<int>(y.extent(1));
  with_packs<E>(width, {y.data(), x.data()}, [&](auto n) {
    Kokkos::parallel_for("minitaw::swiglu_forward", row_policy(exec, x.extent(0), width / n),
                         SwigluForward<E, n>{y.data(), x.data(), width});
  });
}

template <class E>
void swiglu_backward(const ExecutionSpace& exec, Matrix<E> dx, Matrix<E> y, MatrixIn<E> dy, MatrixIn<E> x) {
  const int width = static_cast<int>(y.extent(1));
  with_packs<E>(width, {dx.data(), y.data(), dy.data(), x.data()}, [&](auto n) {
    Kokkos::parallel_for("minitaw::swiglu_backward", row_policy(exec, x.extent(0), width / n),
                         SwigluBackward<E, n>{dx.data(), y.data(), dy.data(), x.data(), width});
  });
}

MINITAW_INSTANTIATE(swiglu_forward)
MINITAW_INSTANTIATE(swiglu_backward)

namespace {

struct RopeTable {
  float* table;
  int head_dim;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int position = team.league_rank(), pairs = head_dim / 2;
    float* const out = table + std::int64_t{position} * head_dim;
    row_for(team, pairs, [=](int i) {
      const double angle = position * Kokkos::pow(10000.0, -static_cast<double>(i) / pairs);
      out[2 * i] = static_cast<float>(Kokkos::cos(angle));
      out[2 * i + 1] = static_cast<float>(Kokkos::sin(angle));
    });
  }
};

/// n elements of a head at a time: an even number, in one access each, or two one by one (n = 1).
template <class E, int n>
struct Turn {
  static constexpr int step = n == 1 ? 2 : n;

  E* qkv;
  const float* table;
  std::int64_t stride;  ///< elements from one token to the next
  int seq, heads, head_dim;
  float direction;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int token = team.league_rank(), steps = head_dim / step;
    const float* const turn = table + std::int64_t{token % seq} * head_dim;
    E* const row = qkv + token * stride;
    const float sign = direction;
    if (n == 1 && alone(team)) {  // loops without a division become vector code
      for (int head = 0; head < heads; ++head) {
        E* const x = row + head * head_dim;
        row_for(team, steps, [=](int i) { turn_pairs(x, i, turn, i, sign); });
      }
    } else {
      row_for(team, heads * steps, [=](int i) { turn_pairs(row, i, turn, i % steps, sign); });
    }
  }

  /// Step i of a row by step `at` of the table.
  KOKKOS_FUNCTION static void turn_pairs(E* x, int i, const float* turn, int at, float sign) {
    if constexpr (n == 1) {
      const float even = load(x[2 * i]), odd = load(x[2 * i + 1]);
      const float cosine = turn[2 * at], sine = sign * turn[2 * at + 1];
      x[2 * i] = store<E>(even * cosine - odd * sine);
      x[2 * i + 1] = store<E>(even * sine + odd * cosine);
    } else {
      const Floats<n> in = load_pack<n>(x, i), angle = load_pack<n>(turn, at);
      Floats<n> out;
      for (int j = 0; j < n; j += 2) {
        const float sine = sign * angle[j + 1];
        out[j] = in[j] * angle[j] - in[j + 1] * sine;
        out[j + 1] = in[j] * sine + in[j + 1] * angle[j];
      }
      store_pack<n>(x, i, out);
    }
  }
};

template <class E>
void turn_rows(const char* label, const ExecutionSpace& exec, Matrix<E> qkv, Matrix<const float> table,
               int heads, float direction) {
  const int head_dim = static_cast<int>(table.extent(1)), seq = static_cast<int>(table.extent(0));
  const auto stride = static_cast<std::int64_t>(qkv.extent(1));
  // the width of a token's row is a multiple of head_dim
  with_packs<E>(head_dim, {qkv.data(), table.data()}, [&](auto n) {
    using Kernel = Turn<E, n>;
    Kokkos::parallel_for(label, row_policy(exec, qkv.extent(0), heads * head_dim / Kernel::step),
                         Kernel{qkv.data(), table.data(), stride, seq, heads, head_dim, direction});
  });
}

}  // namespace

void rope_table(const ExecutionSpace& exec, Matrix<float> table) {
  const int head_dim = static_cast<int>(table.extent(1));
  Kokkos::parallel_for("minitaw::rope_table", row_policy(exec, table.extent(0), head_dim / 2),
                       RopeTable{table.data(), head_dim});
}

template <class E>
void rope_forward(const ExecutionSpace& exec, Matrix<E> qkv, Matrix<const float> table, int heads) {
  turn_rows("minitaw::rope_forward", exec, qkv, table, heads, 1.0F);
}

template <class E>
void rope_backward(const ExecutionSpace& exec, Matrix<E> dqkv, Matrix<const float> table, int heads) {
  turn_rows("minitaw::rope_backward", exec, dqkv, table, heads, -1.0F);
}

MINITAW_INSTANTIATE(rope_forward)
MINITAW_INSTANTIATE(rope_backward)

namespace {

template <class E, bool accumulate>
struct Add {
  float* total;
  const E* contribution;

  template <int n>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    Floats<n> sum = load_pack<n>(contribution + i, 0);
    if constexpr (accumulate) {
      const Floats<n> before = load_pack<n>(total + i, 0);
      for (int j = 0; j < n; ++j) sum[j] += before[j];
    }
    store_pack<n>(total + i, 0, sum);
  }
};

}  // namespace

template <class E>
void add(const ExecutionSpace& exec, Vector<float> total, VectorIn<E> contribution, bool accumulate) {
  const auto run = [&](auto adds) {
    flat_for<E>("minitaw::add", exec, static_cast<std::int64_t>(total.extent(0)),
                {total.data(), contribution.data()}, Add<E, adds>{total.data(), contribution.data()});
  };
  accumulate ? run(std::true_type()) : run(std::false_type());
}

MINITAW_INSTANTIATE(add)

namespace {

/// The master weights; with `rounded` also their copy in the compute type.
template <class E, bool rounded>
struct Update {
  E* weights;
  float* master;
  float* moment1;
  float* moment2;
  const float* gradient;
  AdamWStep step;

  template <int n>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    const Floats<n> g = load_pack<n>(gradient + i, 0);
    Floats<n> w = load_pack<n>(master + i, 0), m1 = load_pack<n>(moment1 + i, 0),
              m2 = load_pack<n>(moment2 + i, 0);
    for (int j = 0; j < n; ++j) one(w[j], m1[j], m2[j], g[j]);
    store_pack<n>(moment1 + i, 0, m1);
    store_pack<n>(moment2 + i, 0, m2);
    store_pack<n>(master + i, 0, w);
    if constexpr (rounded) store_pack<n>(weights + i, 0, w);
  }

  KOKKOS_FUNCTION void one(float& w, float& m1, float& m2, float g) const {
    m1 = step.beta1 * m1 + (1.0F - step.beta1) * g;
    m2 = step.beta2 * m2 + (1.0F - step.beta2) * g * g;
    const float direction = m1 * step.correction1 / (Kokkos::sqrt(m2 * step.correction2) + step.epsilon);
    w -= step.learning_rate * (direction + step.decay * w);
  }
};

}  // namespace

template <class E>
void adamw(const ExecutionSpace& exec, Vector<E> weights, Vector<float> master, Vector<float> moment1,
           Vector<float> moment2, Vector<const float> gradient, const AdamWStep& step) {
  const auto run = [&](auto rounded) {
    flat_for<E>("minitaw::adamw", exec, static_cast<std::int64_t>(weights.extent(0)),
                {weights.data(), master.data(), moment1.data(), moment2.data(), gradient.data()},
                Update<E, rounded>{weights.data(), master.data(), moment1.data(), moment2.data(),
                                   gradient.data(), step});
  };
  if constexpr (std::is_same_v<E, float>)
    if (weights.data() == master.data())
      return run(std::false_type());  // one array: the loop stays vector code
  run(std::true_type());
}

MINITAW_INSTANTIATE(adamw)

namespace {

/// A thread draws a run of blocks of four numbers, all of them at each step of the generator: on a host loops
/// over them are vector code, a device's thread has one block.
template <class E>
struct Run {
  static constexpr int blocks = on_host ? 64 : 1, numbers = 4 * blocks;
  E* weights;
  float* master;
  std::int64_t count;
  UniformRow row;
  std::int64_t first;  ///< number of the row that comes to place 0

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t begin = first / 4 + i * blocks, at = 4 * begin - first;
    float drawn[numbers];
    draw(drawn, static_cast<std::uint64_t>(begin));
    const int from = at < 0 ? static_cast<int>(-at) : 0,
              to = at + numbers > count ? static_cast<int>(count - at) : numbers;
    if (master)
      for (int k = from; k < to; ++k) master[at + k] = drawn[k];
    if (weights)
      for (int k = from; k < to; ++k) weights[at + k] = store<E>(drawn[k]);
  }

  KOKKOS_FUNCTION void draw(float* drawn, std::uint64_t begin) const {
    Words<blocks> a, b, c, d;
    for (int k = 0; k < blocks; ++k) {
      const std::uint64_t block = begin + static_cast<std::uint64_t>(k);
      a.word[k] = static_cast<std::uint32_t>(block);
      b.word[k] = static_cast<std::uint32_t>(block >> 32);
      c.word[k] = row.row[0];
      d.word[k] = row.row[1];
    }
    philox(a, b, c, d, row.key);
    for (int k = 0; k < blocks; ++k) {
      drawn[4 * k] = row.number(a.word[k]);
      drawn[4 * k + 1] = row.number(b.word[k]);
      drawn[4 * k + 2] = row.number(c.word[k]);
      drawn[4 * k + 3] = row.number(d.word[k]);
    }
  }
};

}  // namespace

template <class E>
void uniform(const ExecutionSpace& exec, Vector<E> weights, Vector<float> master, std::int64_t first,
             const UniformRow& row) {
  using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  const auto count = static_cast<std::int64_t>(std::max(weights.extent(0), master.extent(0)));
  if (count == 0) return;
  const std::int64_t blocks = (first + count + 3) / 4 - first / 4;
  Kokkos::parallel_for("minitaw::uniform", Range(exec, 0, (blocks + Run<E>::blocks - 1) / Run<E>::blocks),
                       Run<E>{weights.data(), master.data(), count, row, first});
}

MINITAW_INSTANTIATE(uniform)

}  // namespace minitaw::kernels
