#pragma once

#include <mpi.h>

#include <functional>
#include <stdexcept>

namespace minitaw::engine {

/// Something failed on some rank, and every rank knows: the job can go on without it.
struct AgreedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory ran out on some rank.
struct AgreedOutOfMemory : AgreedError {
  using AgreedError::AgreedError;
};

/// A barrier for ranks that may wait long: they sleep instead of taking the cores of those that still
/// compute.
void wait_for_all(MPI_Comm comm);

/// Runs `work` on every rank of `comm` and waits for all. If it fails anywhere, every rank throws what the
/// lowest failing rank threw: as InputError if it was one there, as AgreedOutOfMemory if memory ran out, else
/// as AgreedError. Collective; `work` itself must not communicate.
void agree(MPI_Comm comm, const std::function<void()>& work);

}  // namespace minitaw::engine
