#pragma once

#include <functional>
#include <memory>

#include "engine/queue.hpp"
#include "model/model.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// Where a lane's kernels and copies run. Made once per process and kept until Kokkos ends, since libraries
/// keep handles and workspaces by them. On CUDA each lane is a stream of its own, those of communication with
/// high priority; on other devices each lane is an instance of the space; on a host all are the default
/// space.
[[nodiscard]] model::ExecutionSpace lane_space(schedule::Lane lane);

/// The lane's stream for libraries that take one (cudaStream_t); nullptr where there is none.
[[nodiscard]] void* lane_stream(schedule::Lane lane);

/// A thread that is not Kokkos's own works on this rank's device from now on.
void use_device();

/// The queues of a rank's lanes, by schedule::Lane.
using Queues = std::array<std::unique_ptr<Queue>, schedule::lanes>;

struct QueueOptions {
  std::array<int, schedule::lanes> units{};  ///< of each lane
  const Clock* clock = nullptr;
  Queue::Check waiting;                  ///< ends a wait of one lane for another
  bool communication_on_stream = false;  ///< the transport enqueues instead of completing
};

/// The queues of this build: streams on CUDA (communication only if the transport works on them), else
/// threads.
[[nodiscard]] Queues make_queues(const QueueOptions& options);

}  // namespace minitaw::engine
