// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "benchmark.hpp"
#include "comm/mpi/mpi.hpp"
#include "harness/case_runner.hpp"

namespace minitaw::bench {
namespace {
using comm::mpi::check;
using Clock = std::chrono::steady_clock;
using Host = Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
using ConstHost = Kokkos::View<const std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

/// The ranks of the job begin together.
class Start {
public:
  Start() {
    const topology::Placement place = topology::detect(MPI_COMM_WORLD);
    crowded_ = place.nodes.count() == 1 && place.nodes.ranks() > place.node_cores;
  }

  /// Where ranks share cores, those in a barrier of MPI's keep the others from leaving it, and the
  /// slices of the scheduler would be what is measured. There all sleep until a moment on the clock
  /// of the node.
  void together() const {
    if (!crowded_)
      return check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    harness::wait_for_all(MPI_COMM_WORLD);
    const Clock::duration soon = std::chrono::milliseconds(20);
    std::int64_t moment = (Clock::now() + soon).time_since_epoch().count();
    check(MPI_Bcast(&moment, 1, MPI_INT64_T, 0, MPI_COMM_WORLD), "MPI_Bcast");
    std::this_thread::sleep_until(Clock::time_point(Clock::duration(moment)));
  }

private:
  bool crowded_ = false;
};

/// An operation with its backend, on this rank.
class Trial {
public:
  Trial(const Start& start,
      const Size& size,
      const Scopes& scopes,
      const Scope& scope,
      Operation operation,
      Buffers& buffers,
      const CommOptions& options)
      : start_(start),
        size_(size),
        scope_(scope),
        operation_(operation),
        buffers_(buffers),
        options_(options),
        rank_(comm::mpi::rank_in(MPI_COMM_WORLD)),
        member_(member_of(scopes, scope, rank_)),
        contents_(size, options.seed),
        before_(contents_.before(rank_)) {}

  double seconds(Backend& backend) {
    Kokkos::deep_copy(buffers_.data, ConstHost(before_.data(), before_.size()));
    start_.together();
    const auto begin = Clock::now();
    if (member_.taken())
      backend.move(operation_, scope_, member_, size_, buffers_);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  /// Collective; of the contents that the last operation has left.
  void require_right(const Backend& backend, bool spoil) const {
    const std::string mine = member_.taken() ? fault(backend, spoil) : std::string();
    const std::vector<std::string> all = comm::mpi::gather_texts(mine, MPI_COMM_WORLD);
    const auto wrong =
        std::ranges::find_if(all, [](const std::string& text) { return !text.empty(); });
    if (wrong == all.end())
      return;
    throw Wrong(fmt::format("{} of {} bytes {} by {} is wrong on rank {}: {}",
        name_of(operation_),
        size_.bytes(),
        scope_.name,
        backend.name(),
        wrong - all.begin(),
        *wrong));
  }

private:
  [[nodiscard]] std::string fault(const Backend& backend, bool spoil) const {
    std::vector<std::byte> after(size_.bytes());
    Kokkos::deep_copy(Host(after.data(), after.size()),
        operation_ == Operation::shift ? buffers_.landing : buffers_.data);
    // The last byte of a number holds its sign. Member 0 has a result of every operation.
    if (spoil && member_.index == 0)
      after[model::bytes_of(size_.dtype) - 1] ^= std::byte{0x80};
    return contents_.fault(operation_, member_, rank_, backend.slices_in_place(), after);
  }

  const Start& start_;
  const Size& size_;
  const Scope& scope_;
  Operation operation_;
  Buffers& buffers_;
  const CommOptions& options_;
  int rank_;
  Member member_;
  Contents contents_;
  std::vector<std::byte> before_;
};

/// The slowest rank counts.
void slowest(std::vector<double>& seconds) {
  check(MPI_Allreduce(MPI_IN_PLACE,
            seconds.data(),
            static_cast<int>(seconds.size()),
            MPI_DOUBLE,
            MPI_MAX,
            MPI_COMM_WORLD),
      "MPI_Allreduce of times");
}

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
  const Start start;
  std::vector<Measured> results;
  for (const Scope& scope : scopes.scopes)
    for (std::size_t o = 0; o < operation_names.size(); ++o) {
      const auto operation = static_cast<Operation>(o);
      Trial trial(start, size, scopes, scope, operation, buffers, options);
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
      slowest(m.ours);
      slowest(m.raw);
      results.push_back(std::move(m));
    }
  return results;
}
}  // namespace minitaw::bench
