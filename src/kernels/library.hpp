#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.hpp"

/// The vendors' libraries behind matrix products and attention.
namespace minitaw::kernels {

/// Throws InputError if kernels find the members of their functors elsewhere than the host put them, as in
/// builds with nvcc 13 and g++ whose Views have [[no_unique_address]] members. To be called once, before any
/// other kernel.
void require_one_layout();

/// Handles and workspaces that matrix products on this queue use; to be called once per queue, before its
/// first step, because it allocates. They live until Kokkos ends, and so must the queue.
void prepare(const ExecutionSpace& exec);

/// While on, the first matrix product of a kind on this queue times all algorithms that the library offers,
/// and keeps the fastest; what it adds to is then of no use. Not in a step: it waits for the queue. Nothing
/// to choose on a host.
void choose_by_time(const ExecutionSpace& exec, bool on);
/// What was chosen so for products on this queue, in words, one line each.
[[nodiscard]] std::vector<std::string> choices(const ExecutionSpace& exec);

/// Device bytes that the libraries' workspaces hold now, of all queues.
[[nodiscard]] std::size_t library_bytes();

/// Name and version of each library that this build multiplies and attends with.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace minitaw::kernels
