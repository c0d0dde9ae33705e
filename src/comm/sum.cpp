#include "comm/sum.hpp"

#include "base/bf16.hpp"

namespace minitaw::comm {
namespace {

// Plain loops: they run on communication threads, which must not enter the compute threads' parallel regions.
void add_fp32(float* __restrict target, const float* __restrict other, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) target[i] += other[i];
}

void add_bf16(Bf16* __restrict target, const Bf16* __restrict other, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) target[i] = to_bf16(to_float(target[i]) + to_float(other[i]));
}

}  // namespace

std::size_t bytes_of(Scalar scalar) { return scalar == Scalar::fp32 ? sizeof(float) : sizeof(Bf16); }

void add(Scalar scalar, std::byte* target, const std::byte* other, std::int64_t elements) {
  if (scalar == Scalar::fp32)
    add_fp32(reinterpret_cast<float*>(target), reinterpret_cast<const float*>(other), elements);
  else add_bf16(reinterpret_cast<Bf16*>(target), reinterpret_cast<const Bf16*>(other), elements);
}

}  // namespace minitaw::comm
