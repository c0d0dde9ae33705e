#include "kernels/kernels.hpp"

#include <algorithm>

#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

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

template void add<float>(const ExecutionSpace&, Vector<float>, VectorIn<float>, bool);
template void add<Bf16>(const ExecutionSpace&, Vector<float>, VectorIn<Bf16>, bool);

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

template void adamw<float>(const ExecutionSpace&, Vector<float>, Vector<float>, Vector<float>, Vector<float>,
                           Vector<const float>, const AdamWStep&);
template void adamw<Bf16>(const ExecutionSpace&, Vector<Bf16>, Vector<float>, Vector<float>, Vector<float>,
                          Vector<const float>, const AdamWStep&);

namespace {

/// Where numbers go; `at` counts from the first one.
template <class E>
struct Target {
  E* weights;
  float* master;
  std::int64_t count;

  KOKKOS_FUNCTION void put(std::int64_t at, float number) const {
    if (at < 0 || at >= count) return;
    if (weights) weights[at] = store<E>(number);
    if (master) master[at] = number;
  }
};

/// A thread of a device draws one block of four.
template <class E>
struct Block {
  Target<E> to;
  UniformRow row;
  std::int64_t first;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t block = first / 4 + i;
    const Words<4> words = row.words(static_cast<std::uint64_t>(block));
    for (int j = 0; j < 4; ++j) to.put(4 * block + j - first, row.number(words[j]));
  }
};

/// A thread of a host draws a run of blocks, all of them at each step of the generator: loops over them are
/// vector code.
template <class E>
struct Run {
  static constexpr int blocks = 64;
  Target<E> to;
  UniformRow row;
  std::int64_t first;

  void operator()(std::int64_t i) const {
    const std::int64_t begin = first / 4 + i * blocks;
    float numbers[4 * blocks];
    draw(numbers, static_cast<std::uint64_t>(begin));
    const std::int64_t at = 4 * begin - first;
    if (at < 0 || at + 4 * blocks > to.count) {
      for (int k = 0; k < 4 * blocks; ++k) to.put(at + k, numbers[k]);
      return;
    }
    if (to.master) std::copy_n(numbers, 4 * blocks, to.master + at);
    if (to.weights)
      for (int k = 0; k < 4 * blocks; ++k) to.weights[at + k] = store<E>(numbers[k]);
  }

  void draw(float* numbers, std::uint64_t begin) const {
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
      numbers[4 * k] = row.number(a.word[k]);
      numbers[4 * k + 1] = row.number(b.word[k]);
      numbers[4 * k + 2] = row.number(c.word[k]);
      numbers[4 * k + 3] = row.number(d.word[k]);
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
  const Target<E> to{weights.data(), master.data(), count};
  const std::int64_t blocks = (first + count + 3) / 4 - first / 4;
  if constexpr (on_host)
    Kokkos::parallel_for("minitaw::uniform", Range(exec, 0, (blocks + Run<E>::blocks - 1) / Run<E>::blocks),
                         Run<E>{to, row, first});
  else Kokkos::parallel_for("minitaw::uniform", Range(exec, 0, blocks), Block<E>{to, row, first});
}

template void uniform<float>(const ExecutionSpace&, Vector<float>, Vector<float>, std::int64_t,
                             const UniformRow&);
template void uniform<Bf16>(const ExecutionSpace&, Vector<Bf16>, Vector<float>, std::int64_t,
                            const UniformRow&);

}  // namespace minitaw::kernels
