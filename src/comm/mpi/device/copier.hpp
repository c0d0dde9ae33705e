#pragma once

#include <Kokkos_Core.hpp>
#include <vector>

#include "base/pinned_space.hpp"
#include "comm/mpi/memory.hpp"

namespace minitaw::comm::mpi {

/// Copies between the memory of Kokkos's default execution space and pinned memory, each queue an instance of
/// that space. Where the default space is the host's, a copy is complete when it has started.
class DeviceCopier final : public Copier {
public:
  using ExecutionSpace = Kokkos::DefaultExecutionSpace;

  DeviceCopier();
  ~DeviceCopier() override;

  void load(std::size_t queue, Piece pinned, Piece buffer) override;
  void store(std::size_t queue, Piece buffer, Piece pinned) override;
  void wait_loaded(std::size_t queue) override;
  void wait_stored(std::size_t queue) override;

private:
  std::vector<ExecutionSpace> loads_, stores_;  ///< by queue; empty on the host
};

}  // namespace minitaw::comm::mpi
