// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <thread>

#include "benchmark.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::bench {
namespace {
using Host = Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
using ConstHost = Kokkos::View<const std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

/// Times what the ranks of the job do at the same time.
class Stopwatch {
public:
  /// `share_cores`: the ranks are on one machine and outnumber its cores. Those in a barrier of
  /// MPI's would keep the others from leaving it, and slices of the scheduler be what is measured.
  explicit Stopwatch(bool share_cores) : share_cores_(share_cores) {}

  /// Returns the seconds until `work` has ended on the slowest rank; all begin together.
  /// Collective.
  double slowest(const std::function<void()>& work) const {
    begin_together();
    const double begin = MPI_Wtime();
    work();
    return comm::mpi::largest(MPI_Wtime() - begin, MPI_COMM_WORLD);
  }

private:
  /// All have slept until the last one is here. Who shares cores then sleeps until an agreed moment
  /// on the clock of the machine.
  void begin_together() const {
    using Clock = std::chrono::steady_clock;
    using comm::mpi::check_mpi;
    (void)comm::mpi::largest(0, MPI_COMM_WORLD);
    if (!share_cores_)
      return check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    constexpr Clock::duration soon = std::chrono::milliseconds(20);
    std::int64_t moment = (Clock::now() + soon).time_since_epoch().count();
    check_mpi(MPI_Bcast(&moment, 1, MPI_INT64_T, 0, MPI_COMM_WORLD), "MPI_Bcast");
    std::this_thread::sleep_until(Clock::time_point(Clock::duration(moment)));
  }

  bool share_cores_;
};

/// An operation with its backend, on this rank.
class Trial {
public:
  Trial(const Stopwatch& stopwatch,
      const Size& size,
      const Scopes& scopes,
      const Scope& scope,
      Operation operation,
      Buffers& buffers)
      : stopwatch_(stopwatch),
        size_(size),
        scope_(scope),
        operation_(operation),
        buffers_(buffers),
        rank_(comm::mpi::rank_in(MPI_COMM_WORLD)),
        member_(member_of(scopes, scope, rank_)),
        contents_(size),
        before_(contents_.before(rank_)) {}

  /// Of the slowest rank.
  double seconds(Backend& backend) {
    Kokkos::deep_copy(buffers_.data, ConstHost(before_.data(), before_.size()));
    return stopwatch_.slowest([&] {
      if (member_.taken())
        backend.move(operation_, scope_, member_, size_, buffers_);
    });
  }

  /// Collective; of the contents that the last operation has left.
  void require_right(const Backend& backend, bool spoil) const {
    const std::string mine = member_.taken() ? fault(backend, spoil) : std::string();
    const auto [rank, wrong] = comm::mpi::first_text(mine, MPI_COMM_WORLD);
    if (wrong.empty())
      return;
    throw Wrong(fmt::format("{} of {} bytes {} by {} is wrong on rank {}: {}",
        name_of(operation_),
        size_.bytes(),
        scope_.name,
        backend.name(),
        rank,
        wrong));
  }

private:
  [[nodiscard]] std::string fault(const Backend& backend, bool spoil) const {
    std::vector<std::byte> after(size_.bytes());
    Kokkos::deep_copy(Host(after.data(), after.size()),
        operation_ == Operation::shift ? buffers_.landing : buffers_.data);
    // The last byte of a number holds its sign. Member 0 has a result of every operation.
    if (spoil && member_.index == 0)
      after[model::bytes_of(size_.dtype) - 1] ^= std::byte{0x80};
    return contents_.fault(operation_, member_, rank_, backend.shares_in_place(), after);
  }

  const Stopwatch& stopwatch_;
  const Size& size_;
  const Scope& scope_;
  Operation operation_;
  Buffers& buffers_;
  int rank_;
  Member member_;
  Contents contents_;
  std::vector<std::byte> before_;
};

/// A round that does not count: connections, buffers of the library, first touch. Its contents are
/// checked.
void rehearse(Trial& trial, Backend& ours, Backend* raw, bool verify, bool spoil) {
  (void)trial.seconds(ours);
  if (verify)
    trial.require_right(ours, spoil);
  if (raw == nullptr)
    return;
  (void)trial.seconds(*raw);
  if (verify)
    trial.require_right(*raw, false);
}
}  // namespace

std::vector<Measured> measure(const Size& size,
    const Scopes& scopes,
    Backend& ours,
    Backend* raw,
    const CommOptions& options) {
  Buffers buffers(size.bytes());
  const topology::Placement place = comm::mpi::detect_placement(MPI_COMM_WORLD);
  const Stopwatch stopwatch(place.nodes.count() == 1 && place.nodes.ranks() > place.node_cores);
  std::vector<Measured> results;
  for (const Scope& scope : scopes.scopes)
    for (std::size_t o = 0; o < operation_names.size(); ++o) {
      const auto operation = static_cast<Operation>(o);
      Trial trial(stopwatch, size, scopes, scope, operation, buffers);
      rehearse(trial, ours, raw, options.verify, options.spoil == name_of(operation));
      Measured m{
          size, scope.name, operation, ours.name(), raw == nullptr ? "" : raw->name(), {}, {}};
      for (int round = 0; round < options.rounds; ++round) {
        if (round % 2 == 1 && raw != nullptr)
          m.raw.push_back(trial.seconds(*raw));
        m.ours.push_back(trial.seconds(ours));
        if (round % 2 == 0 && raw != nullptr)
          m.raw.push_back(trial.seconds(*raw));
      }
      results.push_back(std::move(m));
    }
  return results;
}
}  // namespace minitaw::bench
