// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/vendor/queue.hpp"
#include <map>
#include <memory>
#include <mutex>
#include "kernels/detail/backends.hpp"

namespace minitaw::kernels::detail::vendor {
namespace {
/// Emptied before Kokkos and the device end; destructors of static objects would come too late.
struct Queues {
  Queues() {
    Kokkos::push_finalize_hook([this] { of.clear(); });
  }

  std::mutex mutex;
  std::map<Stream, std::unique_ptr<Queue>> of;
};

Queues& queues() {
  static Queues all;
  return all;
}

/// The largest power of two up to 256 that divides the address: whether fast kernels may read 16
/// bytes at once.
std::uint32_t alignment_of(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  std::uint32_t alignment = 256;
  while (value % alignment != 0)
    alignment /= 2;
  return alignment;
}
}  // namespace

/// Kokkos keeps 128 bytes of its own before what it hands out.
void Workspace::reserve(std::size_t size) {
  constexpr std::size_t alignment = 256;
  if (size <= bytes_)
    return;
  std::size_t space = size + alignment;
  memory_ = {};  // before the next one
  memory_ = decltype(memory_)(
      Kokkos::view_alloc(std::string(library_label), Kokkos::WithoutInitializing), space);
  data_ = memory_.data();
  (void)std::align(alignment, size, data_, space);
  bytes_ = size;
}

Queue::Queue(Stream stream)
    : products(stream)
#ifdef MINITAW_HAVE_CUDNN
      ,
      attention(stream)
#endif
{
  workspace.reserve(product_workspace_bytes);
}

Queue& queue_of(const ExecutionSpace& exec) {
  // a thread of ours may never have said which device it works on
  static const int device = Kokkos::device_id();
  MINITAW_CALL(SetDevice, device);
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  const Stream stream = minitaw::vendor::stream_of(exec);
  std::unique_ptr<Queue>& queue = all.of[stream];
  if (!queue)
    queue = std::make_unique<Queue>(stream);
  return *queue;
}

std::size_t workspace_bytes() {
  Queues& all = queues();
  const std::lock_guard lock(all.mutex);
  std::size_t bytes = 0;
  for (const auto& [stream, queue] : all.of)
    if (queue)
      bytes += queue->workspace.bytes();
  return bytes;
}

template <class C, class E>
bool matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta) {
  const ProductKey key{.m = static_cast<std::int64_t>(c.extent(0)),
      .n = static_cast<std::int64_t>(c.extent(1)),
      .k = static_cast<std::int64_t>(a.matrix.extent(a.transposed ? 0 : 1)),
      .transposed_a = a.transposed,
      .transposed_b = b.transposed,
      .adds = beta != 0,
      .narrow = std::is_same_v<E, Bf16>,
      .narrow_result = std::is_same_v<C, Bf16>,
      .alignment_a = alignment_of(a.matrix.data()),
      .alignment_b = alignment_of(b.matrix.data()),
      .alignment_c = alignment_of(c.data())};
  Queue& queue = queue_of(exec);
  return queue.products.multiply(
      key, {a.matrix.data(), b.matrix.data(), c.data(), beta}, queue.workspace.data());
}

MINITAW_INSTANTIATE_PRODUCT(matmul)
}  // namespace minitaw::kernels::detail::vendor
