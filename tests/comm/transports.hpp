#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/transport.hpp"
#include "comm/nccl/calls.hpp"
#include "comm/nccl/transport.hpp"
#include "copiers.hpp"
#include "fake_nccl.hpp"

namespace minitaw::comm::test {

/// The transports that must behave alike.
enum class Kind {
  host,            ///< MPI, buffers in host memory
  staged,          ///< MPI through pinned slots, copies as late as may be
  staged_threads,  ///< the same, copies in other threads
  nccl,            ///< over a stand-in for NCCL; complete when a call returns
};

inline std::string name_of(Kind kind) {
  switch (kind) {
  case Kind::host:
    return "host";
  case Kind::staged:
    return "staged";
  case Kind::staged_threads:
    return "staged_threads";
  case Kind::nccl:
    break;
  }
  return "nccl";
}

inline constexpr std::size_t communication_lanes = schedule::lanes - 1;

/// A transport with the memory that it needs.
class Built {
public:
  virtual ~Built() = default;
  [[nodiscard]] virtual Transport& transport() = 0;
};

class BuiltHost final : public Built {
public:
  explicit BuiltHost(const schedule::Program& program)
      : staging_(2 * communication_lanes * schedule::chunk_bytes),
        transport_(MPI_COMM_WORLD, program, staging_) {}
  Transport& transport() override { return transport_; }

private:
  std::vector<std::byte> staging_;
  mpi::Transport transport_;
};

/// Slots as pinned_shape() plans them, but small, so that messages of a test go round them several times.
template <class Copier>
class BuiltStaged final : public Built {
public:
  explicit BuiltStaged(const schedule::Program& program, std::size_t slots = 16, std::size_t piece = 1 << 16)
      : pinned_(communication_lanes * slots * piece, std::byte{0x5a}),
        transport_(MPI_COMM_WORLD, program, memories(slots * piece, piece)) {}
  Transport& transport() override { return transport_; }

private:
  mpi::LaneMemories memories(std::size_t bytes, std::size_t piece) {
    const std::span<std::byte> all(pinned_);
    mpi::LaneMemories memories;
    for (std::size_t l = 0; l < communication_lanes; ++l)
      memories[l + 1] = mpi::staged_memory(all.subspan(l * bytes, bytes), piece, copiers_[l]);
    return memories;
  }
  std::vector<std::byte> pinned_;
  std::array<Copier, communication_lanes> copiers_;
  mpi::Transport transport_;
};

/// Something to tell the queues of lanes by.
using Lanes = std::array<int, schedule::lanes>;
inline std::array<nccl::Queue, schedule::lanes> queues_of(Lanes& lanes) {
  std::array<nccl::Queue, schedule::lanes> queues{};
  for (std::size_t l = 1; l < lanes.size(); ++l) queues[l] = &lanes[l];
  return queues;
}

class BuiltNccl final : public Built {
public:
  explicit BuiltNccl(const schedule::Program& program)
      : scratch_(nccl::scratch_bytes(program)),
        transport_(MPI_COMM_WORLD, program, fake_, {.queues = queues_of(lanes_), .scratch = scratch_}) {}
  Transport& transport() override { return transport_; }
  [[nodiscard]] FakeNccl& fake() { return fake_; }
  /// The queue of a lane.
  [[nodiscard]] nccl::Queue queue(schedule::Lane lane) {
    return queues_of(lanes_)[static_cast<std::size_t>(lane)];
  }

private:
  FakeNccl fake_;
  Lanes lanes_{};
  std::vector<std::byte> scratch_;
  nccl::Transport transport_;
};

inline std::unique_ptr<Built> build(Kind kind, const schedule::Program& program) {
  if (kind == Kind::host) return std::make_unique<BuiltHost>(program);
  if (kind == Kind::staged) return std::make_unique<BuiltStaged<LazyCopier>>(program);
  if (kind == Kind::nccl) return std::make_unique<BuiltNccl>(program);
  return std::make_unique<BuiltStaged<ThreadCopier>>(program);
}

/// A test that is run for several transports.
class OnEvery : public testing::TestWithParam<Kind> {};

inline std::string name_of_param(const testing::TestParamInfo<Kind>& info) { return name_of(info.param); }

}  // namespace minitaw::comm::test

#define MINITAW_ON_EVERY_TRANSPORT(suite)                                                                    \
  INSTANTIATE_TEST_SUITE_P(On, suite, testing::Values(Kind::host, Kind::staged, Kind::nccl), name_of_param)
