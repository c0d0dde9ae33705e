#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.hpp"

/// The vendors' libraries behind matrix products and attention.
namespace minitaw::kernels {

/// Handles and workspaces that matrix products on this queue use; to be called once per queue, before its
/// first step, because it allocates. They live until Kokkos ends, and so must the queue.
void prepare(const ExecutionSpace& exec);

/// Device bytes that the libraries' workspaces hold now, of all queues.
[[nodiscard]] std::size_t library_bytes();

/// Name and version of each library that this build multiplies and attends with.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace minitaw::kernels
