#include "kernels/uniform.hpp"

#include <algorithm>

#include "kernels/detail/scalar.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

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
