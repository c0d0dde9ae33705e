#pragma once

#include <Kokkos_Core.hpp>
#include <array>
#include <optional>

#include "engine/detail/cuda/check.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine::cuda {

/// One stream per lane. Communication goes first where both have work, because its kernels are short and
/// others wait for them.
class Streams {
public:
  Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams();

  [[nodiscard]] cudaStream_t stream(schedule::Lane lane) const {
    return streams_[static_cast<std::size_t>(lane)];
  }
  [[nodiscard]] Kokkos::Cuda space(schedule::Lane lane) const {
    return *spaces_[static_cast<std::size_t>(lane)];
  }

private:
  std::array<cudaStream_t, schedule::lanes> streams_{};
  std::array<std::optional<Kokkos::Cuda>, schedule::lanes> spaces_;
};

/// Those of this process; made by the first call, gone when Kokkos is finalized.
[[nodiscard]] const Streams& streams();

}  // namespace minitaw::engine::cuda
