// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include "base/error.hpp"
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"
#ifdef MINITAW_HAVE_CUDNN
#include "kernels/cuda/queue.hpp"
#endif

namespace minitaw::kernels {
namespace {
constexpr std::array<std::string_view, 4> names = {
    "auto", "host", "portable", "cudnn"};  // as in Attention

/// The host's version works on float in host memory.
template <class E>
inline constexpr bool host_possible = on_host && std::is_same_v<E, float>;

#ifdef MINITAW_HAVE_CUDNN
template <class E>
inline constexpr bool cudnn_possible = std::is_same_v<E, Bf16>;

/// The queue whose cuDNN shall work on these addresses.
detail::cuda::Queue& queue_for(
    const ExecutionSpace& exec, std::initializer_list<const void*> addresses) {
  if (!detail::aligned(addresses))
    throw LogicError("attention = cudnn: an address is not a multiple of 16");
  return detail::cuda::queue_of(exec);
}
#endif

/// Why `kernel` cannot compute this; empty if it can.
template <class E>
std::string reason_against(Attention kernel, [[maybe_unused]] const AttentionSizes& sizes) {
  if (kernel == Attention::host && !host_possible<E>)
    return "it needs dtype = fp32 and a host build";
  if (kernel != Attention::cudnn)
    return {};
#ifdef MINITAW_HAVE_CUDNN
  return cudnn_possible<E> ? detail::cuda::reason_against_cudnn(sizes) : "it needs dtype = bf16";
#else
  return "this build has no cuDNN";
#endif
}
}  // namespace

std::string name_of(Attention kernel) {
  return std::string(names.at(static_cast<std::size_t>(kernel)));
}

Attention parse_attention(std::string_view text) {
  const auto name = std::ranges::find(names, text);
  if (name == names.end())
    throw InputError(fmt::format("attention = {}: choose auto, host, portable or cudnn", text));
  return static_cast<Attention>(name - names.begin());
}

template <class E>
Attention resolve_attention(Attention kernel, const AttentionSizes& sizes) {
  if (kernel == Attention::automatic) {
    for (const Attention faster : {Attention::host, Attention::cudnn})
      if (reason_against<E>(faster, sizes).empty())
        return faster;
    return Attention::portable;
  }
  if (const std::string reason = reason_against<E>(kernel, sizes); !reason.empty())
    throw InputError(
        fmt::format("attention = {}: {}; use portable or auto", name_of(kernel), reason));
  return kernel;
}

template <class E>
void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes, Attention kernel) {
  const Attention chosen = resolve_attention<E>(kernel, sizes);
  if (chosen == Attention::portable)
    detail::portable::attention_prepare(exec, sizes);
#ifdef MINITAW_HAVE_CUDNN
  if (chosen == Attention::cudnn) {
    detail::cuda::Queue& queue = detail::cuda::queue_of(exec);
    queue.workspace.reserve(queue.attention.prepare(sizes));
  }
#endif
}

template <class E>
void attention_forward(const ExecutionSpace& exec, const AttentionForward<E>& p, Attention kernel) {
  [[maybe_unused]] const Attention chosen = resolve_attention<E>(kernel, p.sizes);
  if constexpr (host_possible<E>)
    if (chosen == Attention::host)
      return detail::host::attention_forward(exec, p);
#ifdef MINITAW_HAVE_CUDNN
  if constexpr (cudnn_possible<E>)
    if (chosen == Attention::cudnn) {
      detail::cuda::Queue& queue = queue_for(exec, {p.y.data(), p.lse.data(), p.qkv.data()});
      return queue.attention.forward(
          p.sizes, p.y.data(), p.lse.data(), p.qkv.data(), queue.workspace.data());
    }
#endif
  detail::portable::attention_forward(exec, p);
}

template <class E>
void attention_backward(
    const ExecutionSpace& exec, const AttentionBackward<E>& p, Attention kernel) {
  [[maybe_unused]] const Attention chosen = resolve_attention<E>(kernel, p.sizes);
  if constexpr (host_possible<E>)
    if (chosen == Attention::host)
      return detail::host::attention_backward(exec, p);
#ifdef MINITAW_HAVE_CUDNN
  if constexpr (cudnn_possible<E>)
    if (chosen == Attention::cudnn) {
      detail::cuda::Queue& queue =
          queue_for(exec, {p.dqkv.data(), p.dy.data(), p.qkv.data(), p.y.data(), p.lse.data()});
      return queue.attention.backward(p.sizes,
          p.dqkv.data(),
          p.dy.data(),
          p.qkv.data(),
          p.y.data(),
          p.lse.data(),
          queue.workspace.data());
    }
#endif
  detail::portable::attention_backward(exec, p);
}

MINITAW_INSTANTIATE(resolve_attention)
MINITAW_INSTANTIATE(attention_prepare)
MINITAW_INSTANTIATE(attention_forward)
MINITAW_INSTANTIATE(attention_backward)
}  // namespace minitaw::kernels
