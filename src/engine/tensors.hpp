#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "engine/session.hpp"

namespace minitaw::engine {

/// A tensor of the whole model by name, on the host.
struct NamedTensor {
  std::string name;
  std::vector<float> values;
};

enum class Which { weights, gradients };

/// All tensors of the model, brought together on rank 0 of `comm` (empty elsewhere), in the order of the
/// layers, ends last: the current weights, or the gradients of the last step. Collective over the ranks of
/// the session.
[[nodiscard]] std::vector<NamedTensor> gather(const Session& session, Which which, MPI_Comm comm);

}  // namespace minitaw::engine
