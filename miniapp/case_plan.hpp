// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <numeric>
#include <optional>
#include "needs.hpp"
#include "print.hpp"
#include "schedule/simulate.hpp"

/// What `minitaw plan` knows of a case.
namespace minitaw::app {
using TrafficBytes = std::array<std::uint64_t, schedule::traffic_kinds>;  ///< by schedule::Traffic
using MemoryBytes = decltype(schedule::Footprint::by_kind);               ///< by schedule::Memory

/// Bytes that a group's ranks exchange with other groups in one step.
struct GroupTraffic {
  int group = 0, ranks = 0;
  std::uint64_t out = 0, in = 0;
};

using Settings = std::vector<std::pair<std::string, std::string>>;  ///< key, value of --set

/// Settings with which a case fits a device.
struct Remedy {
  Settings settings;
  std::uint64_t total = 0;  ///< bytes of the rank that needs most, with libraries
};

/// Whether the ranks fit on devices of one size.
struct DeviceFit {
  std::uint64_t available = 0;
  Need worst;                    ///< of the rank that needs most
  std::int64_t largest_seq = 0;  ///< the largest S that fits; 0: none
  /// Settings with which it fits, if it does not, and somebody has looked for them.
  std::optional<std::vector<Remedy>> remedies;

  bool fits() const { return worst.total() <= available; }
};

/// The cost of a case, from its program alone.
struct CasePlan {
  Case settings;
  std::size_t number = 0;  ///< in the deck
  int shards = 0;
  TrafficBytes inside{}, between{};  ///< of groups, one step
  std::vector<GroupTraffic> groups;
  schedule::Ticks ticks;
  schedule::Idle idle;  ///< with compute as on the assumed device and transfers that are free
  std::vector<MemoryBytes> memory;                  ///< of each rank
  std::vector<Need> host;                           ///< of each rank, with its whole process
  std::size_t worst = 0;                            ///< the rank that needs most memory
  std::array<int, schedule::slot_classes> slots{};  ///< of that rank, by schedule::SlotClass
  std::optional<DeviceFit> device;                  ///< nothing without a device to fit

  /// The group that sends (&GroupTraffic::out) or receives (&GroupTraffic::in) most.
  [[nodiscard]] const GroupTraffic& busiest(std::uint64_t GroupTraffic::* bytes) const;
};

/// The need of the rank whose arena is largest, with what driver, kernels and NCCL take.
[[nodiscard]] Need worst_on_device(const Case& c, const schedule::Program& program);

/// Returns, of each key that may help, the least change with which `c` fits `available` bytes; if
/// none does alone, one remedy of several keys; nothing if they do not suffice together. Sequences
/// of a step stay, but grow with the ranks. Every remedy was planned, which takes seconds where a
/// program has thousands of ranks.
[[nodiscard]] std::vector<Remedy> remedies_of(const Case& c, std::uint64_t available);

/// What a plan assumes of the machine.
struct AssumedMachine {
  schedule::Device device;
  std::optional<std::uint64_t> device_memory;  ///< bytes; nothing: unknown
  int adapters = 1;                            ///< of each node
};

[[nodiscard]] CasePlan plan_case(const Case& c,
    std::size_t number,
    const schedule::Program& program,
    const AssumedMachine& machine);

/// The sum over all kinds.
[[nodiscard]] std::uint64_t total(const auto& by_kind) {
  return std::accumulate(by_kind.begin(), by_kind.end(), std::uint64_t{0});
}
}  // namespace minitaw::app
