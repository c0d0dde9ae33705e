#include "model/gaps.hpp"

#include <algorithm>

#include "base/bf16.hpp"

namespace minitaw::model {

namespace {

template <class G>
struct ClearGaps {
  static constexpr int most = 16;

  G* gradient;
  Gap gaps[most];

  KOKKOS_FUNCTION void operator()(int i) const {
    const Gap gap = gaps[i / alignment];
    const std::int64_t place = i % alignment;
    if (place < gap.elements) gradient[gap.begin + place] = G{};
  }
};

}  // namespace

std::vector<Gap> gaps_of(const Shard& shard) {
  std::vector<Gap> gaps;
  for (std::size_t i = 0; i < shard.tensors.size(); ++i) {
    const std::int64_t begin = shard.tensors[i].offset + shard.tensors[i].size();
    const std::int64_t end = i + 1 < shard.tensors.size() ? shard.tensors[i + 1].offset : shard.elements;
    if (begin < end) gaps.push_back({begin, end - begin});
  }
  return gaps;
}

template <class G>
void clear_gaps(const kernels::ExecutionSpace& exec, G* gradient, std::span<const Gap> gaps) {
  using Range = Kokkos::RangePolicy<kernels::ExecutionSpace, Kokkos::IndexType<int>>;
  for (std::size_t first = 0; first < gaps.size(); first += ClearGaps<G>::most) {
    const std::size_t count = std::min<std::size_t>(ClearGaps<G>::most, gaps.size() - first);
    ClearGaps<G> clear{gradient, {}};
    std::copy_n(gaps.begin() + static_cast<std::ptrdiff_t>(first), count, clear.gaps);
    Kokkos::parallel_for("minitaw::clear_gaps", Range(exec, 0, static_cast<int>(count * alignment)), clear);
  }
}

template void clear_gaps<float>(const kernels::ExecutionSpace&, float*, std::span<const Gap>);
template void clear_gaps<Bf16>(const kernels::ExecutionSpace&, Bf16*, std::span<const Gap>);

}  // namespace minitaw::model
