// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <mpi.h>
#include "case/result.hpp"
#include "engine/make_transport.hpp"
#include "engine/runtime.hpp"
#include "topology/memory.hpp"

namespace minitaw::harness {
using Now = std::function<double()>;
/// Returns how far rank 0's clock is ahead of this rank's, s: `now` here plus this is `now` there.
/// Measured by messages; the error is at most half of the fastest round trip. Collective.
double offset_by_messages(MPI_Comm comm, const Now& now);
/// The same for host_seconds(). A node has one clock, so only one rank of each sends messages.
/// Collective.
double clock_offset(MPI_Comm comm);

/// Gathers the bytes that were sent in so many `steps` on rank 0. The status becomes `wrong` if
/// they differ from the plan, or if data left by a call that is not counted. Collective over the
/// ranks of the case.
void collect_bytes(engine::Runtime& runtime, int steps, MPI_Comm comm, CaseResult& result);

/// Keeps the spans of a rank's timed steps, so that one step can be examined afterwards: ranks
/// exchange nothing while steps are timed.
class TimedSteps {
public:
  /// A rank keeps the spans (24 bytes each) of schedule::kept_steps().
  TimedSteps(const schedule::Program& program, int steps, std::size_t most = std::size_t{1} << 20);
  /// Adds the step that `executor` has just executed, and its length on this rank.
  void add(const engine::Executor& executor, double seconds);

  bool keeps_all() const { return keeps_all_; }

  const std::vector<double>& seconds() const { return seconds_; }

  /// Returns the spans of all ranks in a step on rank 0, on one clock, from the first rank's begin.
  /// Collective.
  trace::StepSpans gather(int step, MPI_Comm comm) const;

private:
  struct Kept {
    double started = 0;  ///< by engine::host_seconds()
    std::vector<engine::Span> spans;
  };

  const Kept& kept(int step) const { return keeps_all_ ? kept_[step] : kept_.back(); }

  bool keeps_all_;
  std::vector<double> seconds_;
  std::vector<Kept> kept_;
};

/// Memory that is planned for a rank, bytes.
struct PlannedMemory {
  schedule::Footprint step;     ///< that its program lists
  std::uint64_t process = 0;    ///< of a host: spans, operands that the BLAS packs
  std::uint64_t libraries = 0;  ///< of a device: workspaces of cuBLASLt and cuDNN
  engine::TransportMemory transport{};
};

/// Bytes allowed beyond the plan. Kokkos: small arrays, for each thread on a host; what it takes
/// for itself is not counted. Process: first calls of libraries. docs/results.md names these.
std::uint64_t slack_of_kokkos();
inline constexpr std::uint64_t slack_of_process = std::uint64_t{64} << 20;

/// Returns the memory of a rank, as the plan and the watch have it.
RankMemory memory_of(const PlannedMemory& planned, const topology::MemoryTaken& taken);
/// Returns what a rank has taken beyond its plan, in one sentence that names the label, or says
/// "outside of Kokkos"; empty: nothing. Where kernels run on a device the process is not judged:
/// the libraries' code and their compilers take what they like.
[[nodiscard]] std::string excess(const PlannedMemory& planned, const topology::MemoryTaken& taken);
/// Returns what a case still holds at its end, likewise: `kept` by Kokkos, but for workspaces of
/// libraries; `grown` of the process, `beside` of that planned.
[[nodiscard]] std::string leftover(
    std::map<std::string, std::uint64_t> kept, std::uint64_t grown, std::uint64_t beside);
/// Returns what the BLAS of this process keeps after a case of this shape; 0 on a device.
std::uint64_t blas_bytes(const model::Shape& shape);

/// Returns the first rank's text that is not empty, with the rank, on all ranks; empty if all are.
/// Collective.
[[nodiscard]] std::string first_text(const std::string& mine, MPI_Comm comm);
/// Fails the case on rank 0 if some rank has a text. Collective.
void fail_at_first(CaseResult& result, const std::string& mine, MPI_Comm comm);

/// Gathers the measurements of every rank on rank 0: times, memory, ticks, and the bytes that the
/// transport has sent in `executed` steps. The status becomes `wrong` if memory exceeds the plan or
/// bytes differ from it. `taken` is this rank's memory. With `timeline`, the result keeps that of
/// the accounted step. Collective over the case's ranks.
void collect(engine::Runtime& runtime,
    const TimedSteps& steps,
    int executed,
    const topology::MemoryTaken& taken,
    bool timeline,
    MPI_Comm comm,
    CaseResult& result);
}  // namespace minitaw::harness
