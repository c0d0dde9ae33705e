#pragma once

#include <mpi.h>

#include <functional>
#include <string>

namespace minitaw::engine {

/// Runs `work` on every rank of `comm` and waits for all. If it fails anywhere, every rank throws what the lowest
/// failing rank threw, as InputError if it was one there, else as std::runtime_error. Collective; `work` itself must
/// not communicate.
void agree(MPI_Comm comm, const std::function<void()>& work);

}  // namespace minitaw::engine
