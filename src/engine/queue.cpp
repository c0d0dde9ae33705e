// SPDX-License-Identifier: BSD-3-Clause
#include "engine/queue.hpp"
#include "base/vendor.hpp"
#ifndef MINITAW_VENDOR  // else detail/vendor/stream_queue.cpp
namespace minitaw::engine {
namespace {
/// One instance of the execution space for each lane, on a device that only Kokkos knows.
const std::vector<model::ExecutionSpace>& instances() {
  static std::vector<model::ExecutionSpace> made;
  if (made.empty()) {
    made = Kokkos::Experimental::partition_space(
        model::ExecutionSpace(), std::vector<int>(schedule::lanes, 1));
    Kokkos::push_finalize_hook([] { made.clear(); });
  }
  return made;
}
}  // namespace

model::ExecutionSpace lane_space(schedule::Lane lane) {
  return kernels::on_host ? model::ExecutionSpace() : instances()[index_of(lane)];
}

void use_device() {}

Queues make_queues(const QueueOptions& options) {
  Queues queues;
  for (const auto& lane : schedule::table_of<schedule::Lane>)
    queues[index_of(lane.value)] = std::make_unique<FencedQueue>(
        lane_space(lane.value), options.units[index_of(lane.value)], *options.clock);
  return queues;
}
}  // namespace minitaw::engine
#endif
