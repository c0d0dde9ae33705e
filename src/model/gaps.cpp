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
  std::int64_t longest;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const Gap gap = gaps[i / longest];
    const std::int64_t place = i % longest;
    if (place < gap.elements) gradient[gap.begin + place] = G{};
  }
};

}  // namespace

std::vector<Gap> gaps_of(std::span<const Tensor> tensors, std::int64_t elements) {
  std::vector<Gap> gaps;
  std::int64_t end = 0;
  const auto leave = [&](std::int64_t until) {
    if (end < until) gaps.push_back({end, until - end});
  };
  for (const Tensor& tensor : tensors) {
    leave(std::min(tensor.offset, elements));
    end = std::max(end, tensor.offset + tensor.size());
  }
  leave(elements);
  return gaps;
}

template <class G>
void clear_gaps(const kernels::ExecutionSpace& exec, G* gradient, std::span<const Gap> gaps) {
  using Range = Kokkos::RangePolicy<kernels::ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  for (std::size_t first = 0; first < gaps.size(); first += ClearGaps<G>::most) {
    const std::size_t count = std::min<std::size_t>(ClearGaps<G>::most, gaps.size() - first);
    const std::span<const Gap> some = gaps.subspan(first, count);
    ClearGaps<G> clear{gradient, {}, std::ranges::max(some, {}, &Gap::elements).elements};
    std::ranges::copy(some, clear.gaps);
    const auto items = static_cast<std::int64_t>(count) * clear.longest;
    Kokkos::parallel_for("minitaw::clear_gaps", Range(exec, 0, items), clear);
  }
}

template void clear_gaps<float>(const kernels::ExecutionSpace&, float*, std::span<const Gap>);
template void clear_gaps<Bf16>(const kernels::ExecutionSpace&, Bf16*, std::span<const Gap>);

}  // namespace minitaw::model
