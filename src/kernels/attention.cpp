#include "kernels/attention.hpp"

#include "base/error.hpp"
#include "kernels/detail/attention_kernels.hpp"

namespace minitaw::kernels {

namespace {

/// True: the host's own version. It works on float in host memory only.
template <class E>
bool use_host(Attention kernel) {
  constexpr bool possible = on_host && std::is_same_v<E, float>;
  if (kernel == Attention::host && !possible)
    throw InputError("attention = host: it needs fp32 and a build without CUDA; use portable or auto");
  return possible && kernel != Attention::portable;
}

}  // namespace

template <class E>
void attention_forward(const ExecutionSpace& exec, Matrix<E> y, Vector<float> lse, MatrixIn<E> qkv,
                       const AttentionSizes& sizes, Attention kernel) {
  if (use_host<E>(kernel)) {
    if constexpr (on_host && std::is_same_v<E, float>)
      detail::host::attention_forward(exec, y, lse, qkv, sizes);
  } else {
    detail::portable::attention_forward<E>(exec, y, lse, qkv, sizes);
  }
}

template <class E>
void attention_backward(const ExecutionSpace& exec, Matrix<E> dqkv, Vector<float> delta, MatrixIn<E> dy,
                        MatrixIn<E> qkv, MatrixIn<E> y, Vector<const float> lse, const AttentionSizes& sizes,
                        Attention kernel) {
  if (use_host<E>(kernel)) {
    if constexpr (on_host && std::is_same_v<E, float>)
      detail::host::attention_backward(exec, dqkv, dy, qkv, y, lse, sizes);
  } else {
    detail::portable::attention_backward<E>(exec, dqkv, delta, dy, qkv, y, lse, sizes);
  }
}

template void attention_forward<float>(const ExecutionSpace&, Matrix<float>, Vector<float>, MatrixIn<float>,
                                       const AttentionSizes&, Attention);
template void attention_backward<float>(const ExecutionSpace&, Matrix<float>, Vector<float>, MatrixIn<float>,
                                        MatrixIn<float>, MatrixIn<float>, Vector<const float>,
                                        const AttentionSizes&, Attention);

}  // namespace minitaw::kernels
