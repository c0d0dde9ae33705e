// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <array>
#include "base/error.hpp"
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"
#ifdef MINITAW_HAVE_CUDNN
#include "kernels/vendor/queue.hpp"
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
detail::vendor::Queue& queue_for(
    const ExecutionSpace& exec, std::initializer_list<const void*> addresses) {
  if (!detail::aligned(addresses))
    throw LogicError("attention = cudnn: an address is not a multiple of 16");
  return detail::vendor::queue_of(exec);
}

/// Places in the workspace of a queue for what cuDNN cannot have where the caller has it; else
/// null. It wants statistics of a part of the rows and heads without gaps. It can neither add to
/// gradients of keys and values nor give them in float.
struct Staging {
  Staging(const AttentionPart& part, void* of_queue)
      : workspace(static_cast<std::byte*>(of_queue)) {
    const std::size_t batch = part.z.batch, heads = part.heads().count;
    if (part.run.count < part.z.seq || part.kv_heads.count < part.z.kv_heads)
      lse = take<float>(batch * heads * part.run.count);
    if (part.own_rows)
      gradients = take<Bf16>(2 * batch * part.run.end() * part.width());
  }

  template <class T>
  T* take(std::size_t count) {
    T* const place = reinterpret_cast<T*>(workspace + bytes);
    bytes += (count * sizeof(T) + 255) / 256 * 256;
    return place;
  }

  /// The workspace of cuDNN itself.
  void* rest() const { return workspace + bytes; }

  std::byte* workspace;
  std::size_t bytes = 0;
  float* lse = nullptr;
  Bf16* gradients = nullptr;
};

/// The statistics of a part, without gaps, to or from their places in [B, h, S].
struct Statistics {
  float *all, *part_of_them;
  AttentionPart part;
  bool back;  ///< to [B, h, S]

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const HeadRange heads = part.heads();
    const int head = static_cast<int>(i / part.run.count);
    const detail::Head at(part, head / heads.count, heads.first + head % heads.count);
    float& in_all = all[at.row + part.run.position + i % part.run.count];
    if (back)
      in_all = part_of_them[i];
    else
      part_of_them[i] = in_all;
  }
};

void move(const ExecutionSpace& exec, const Statistics& statistics) {
  const AttentionPart& part = statistics.part;
  Kokkos::parallel_for("minitaw::attention_statistics",
      detail::FlatPolicy(exec, 0, std::int64_t{part.z.batch} * part.heads().count * part.run.count),
      statistics);
}

void attend_by_cudnn(const ExecutionSpace& exec, const AttentionForward<Bf16>& p) {
  const AttentionPart& part = p.part;
  const auto [keys, values] = p.key_values;
  detail::vendor::Queue& queue =
      queue_for(exec, {p.y.data(), p.lse.data(), p.qkv.data(), keys, values});
  const Staging staging(part, queue.workspace.data());
  float* const lse = staging.lse ? staging.lse : p.lse.data();
  queue.attention.forward(part, p.y.data(), lse, p.qkv.data(), {keys, values}, staging.rest());
  if (staging.lse)
    move(exec, {p.lse.data(), staging.lse, part, true});
}

template <class G>
void attend_by_cudnn(const ExecutionSpace& exec, const AttentionBackward<Bf16, G>& p) {
  const AttentionPart& part = p.part;
  const auto [keys, values] = p.key_values;
  detail::vendor::Queue& queue = queue_for(
      exec, {p.dqkv.data(), p.dy.data(), p.qkv.data(), p.y.data(), p.lse.data(), keys, values});
  const Staging staging(part, queue.workspace.data());
  const float* const lse = staging.lse ? staging.lse : p.lse.data();
  if (staging.lse)
    move(exec, {const_cast<float*>(p.lse.data()), staging.lse, part, false});
  queue.attention.backward(part,
      p.dqkv.data(),
      staging.gradients,
      p.dy.data(),
      p.qkv.data(),
      {keys, values},
      p.y.data(),
      lse,
      staging.rest());
  if (staging.gradients)
    move_key_values<G, Bf16>(exec,
        part,
        {0, part.run.end(), 0},
        p.gradient_sums,
        part.rows(),
        {staging.gradients, staging.gradients + part.width()},
        {2 * part.width(), part.run.end()},
        p.accumulate);
}
#endif

/// Why `kernel` cannot compute this; empty if it can.
template <class E>
std::string reason_against(Attention kernel, [[maybe_unused]] const AttentionPart& part) {
  if (kernel == Attention::host && !host_possible<E>)
    return "it needs dtype = fp32 and a host build";
  if (kernel != Attention::cudnn)
    return {};
#ifdef MINITAW_HAVE_CUDNN
  return cudnn_possible<E> ? detail::vendor::reason_against_cudnn(part) : "it needs dtype = bf16";
#else
  return "this build has no cuDNN";
#endif
}

template <class E>
Attention resolve(Attention kernel, const AttentionPart& part) {
  return resolve_attention<E>(kernel, {part}).kernel;
}

/// A problem of forward or backward, by the version that `kernel` means.
template <class E, class Problem>
void attend(const ExecutionSpace& exec, const Problem& p, Attention kernel) {
  [[maybe_unused]] const Attention chosen = resolve<E>(kernel, p.part);
  if constexpr (host_possible<E>)
    if (chosen == Attention::host)
      return detail::host::attend(exec, p);
#ifdef MINITAW_HAVE_CUDNN
  if constexpr (cudnn_possible<E>)
    if (chosen == Attention::cudnn)
      return attend_by_cudnn(exec, p);
#endif
  detail::portable::attend(exec, p);
}

void need_buffers(const AttentionPart& part, std::initializer_list<const void*> own, bool sums) {
  if (part.own_rows && std::ranges::find(own, nullptr) != own.end())
    throw LogicError("attention: keys and values in buffers of their own, but no buffers");
  if (!part.own_rows && sums)
    throw LogicError("attention: gradients are added or float, but have no buffers of their own");
}
}  // namespace

std::string name_of(Attention kernel) {
  return std::string(names.at(static_cast<std::size_t>(kernel)));
}

Attention parse_attention(std::string_view text) {
  const auto name = std::ranges::find(names, text);
  if (name == names.end())
    throw InputError("attention = {}: choose auto, host, portable or cudnn", text);
  return static_cast<Attention>(name - names.begin());
}

template <class E>
AttentionChoice resolve_attention(Attention kernel, const std::vector<AttentionPart>& calls) {
  const auto against = [&](Attention which) {
    std::string reason;
    for (auto part = calls.begin(); part != calls.end() && reason.empty(); ++part)
      reason = reason_against<E>(which, *part);
    return reason;
  };
  if (kernel != Attention::automatic) {
    if (const std::string reason = against(kernel); !reason.empty())
      throw InputError("attention = {}: {}; use portable or auto", name_of(kernel), reason);
    return {kernel};
  }
  if (against(Attention::host).empty())
    return {Attention::host};
  std::string reason = against(Attention::cudnn);
  if (reason.empty())
    return {Attention::cudnn};
  return {Attention::portable, std::move(reason)};
}

template <class E>
void attention_prepare(const ExecutionSpace& exec, const AttentionPart& part, Attention kernel) {
  const Attention chosen = resolve<E>(kernel, part);
  if (chosen == Attention::portable)
    detail::portable::attention_prepare(exec, part);
#ifdef MINITAW_HAVE_CUDNN
  if (chosen == Attention::cudnn) {
    detail::vendor::Queue& queue = detail::vendor::queue_of(exec);
    queue.workspace.reserve(Staging(part, nullptr).bytes + queue.attention.prepare(part));
  }
#endif
}

template <class E>
void attention_forward(
    const ExecutionSpace& exec, const AttentionForward<E>& given, Attention kernel) {
  const AttentionForward<E> p = detail::placed(given);
  need_buffers(p.part, {p.key_values.keys, p.key_values.values}, false);
  attend<E>(exec, p, kernel);
}

template <class E, class G>
void attention_backward(
    const ExecutionSpace& exec, const AttentionBackward<E, G>& given, Attention kernel) {
  const AttentionBackward<E, G> p = detail::placed(given);
  need_buffers(p.part,
      {p.key_values.keys, p.key_values.values, p.gradient_sums.keys, p.gradient_sums.values},
      p.accumulate || !std::is_same_v<E, G>);
  attend<E>(exec, p, kernel);
}

MINITAW_INSTANTIATE(resolve_attention)
MINITAW_INSTANTIATE(attention_prepare)
MINITAW_INSTANTIATE(attention_forward)
template void attention_backward(const ExecutionSpace&, const AttentionBackward<float>&, Attention);
template void attention_backward(const ExecutionSpace&, const AttentionBackward<Bf16>&, Attention);
template void attention_backward(
    const ExecutionSpace&, const AttentionBackward<Bf16, float>&, Attention);
}  // namespace minitaw::kernels
