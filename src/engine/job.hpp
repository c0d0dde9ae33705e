#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>

#include "comm/mpi/wait.hpp"
#include "engine/reference.hpp"
#include "engine/session.hpp"
#include "record/result.hpp"

namespace minitaw::engine {

/// Largest differences from the reference that count as right; the initial ones are for fp32.
struct Tolerance {
  double loss = 1e-6;
  double gradient = 1e-5;
  /// Looser: AdamW's first steps are about the learning rate whatever the gradient's size, so an element
  /// whose gradient is rounding noise may go either way. A wrong gradient shows at 1e-2.
  double weights = 1e-4;
};

/// Against the serial schedule in the same dtype. In bf16 gradients are rounded wherever they are handed on,
/// at 2^-9 each time, so schedules differ by a few times 1e-3.
[[nodiscard]] Tolerance tolerance_for(model::Dtype dtype);

/// What a comparison with the reference found; complete on rank 0.
struct Check {
  double loss_error = 0;  ///< largest relative difference over the steps
  Difference gradients;   ///< of the first step
  Difference weights;     ///< after the last step
  [[nodiscard]] bool passes(const Tolerance& tolerance) const;
  /// One sentence: what is wrong, by how much, where.
  [[nodiscard]] std::string failure(const Tolerance& tolerance) const;
};

struct JobOptions {
  /// A step in which nothing moves for this long is reported on standard error, rank by rank, and given up.
  std::chrono::duration<double> patience{600};
  /// How communication threads wait, by the cores at hand.
  comm::mpi::Patience waiting{.spins = 2, .yields = 4};
  /// Some ranks use the same device, which NCCL refuses.
  bool shared_devices = false;
  /// Results of run() hold the timeline of a step.
  bool timeline = false;
};

/// Cases run one after the other on the ranks of an MPI job. Every method is collective over the job.
class Job {
public:
  Job(MPI_Comm world, const JobOptions& options);

  /// Plays the case: a first step that is checked against the serial reference when that is affordable,
  /// warm-up, timed steps. Ranks beyond the case's wait. The result is complete on rank 0.
  [[nodiscard]] record::CaseResult run(const deck::Case& c);

  /// Plays `steps` steps and compares losses, every gradient tensor of the first step and the weights after
  /// the last with `reference` (needed on rank 0 only).
  [[nodiscard]] Check verify(const deck::Case& c, int steps, const Reference& reference,
                             const Hooks& hooks = {});

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }

private:
  struct Members;  ///< communicator of the ranks of a case

  /// The part of run() that only the ranks of the case take part in.
  void play(const deck::Case& c, MPI_Comm comm, bool checked, record::CaseResult& result);
  [[nodiscard]] SessionOptions session_options() const;
  [[nodiscard]] std::unique_ptr<Session> open_session(const deck::Case& c, MPI_Comm comm,
                                                      const SessionOptions& options) const;

  MPI_Comm world_;
  JobOptions options_;
  int rank_ = 0;
  int ranks_ = 1;
  References references_;  ///< rank 0's; most cases of a sweep share a few
};

}  // namespace minitaw::engine
