#include "engine/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/error.hpp"
#include "comm/mpi/check.hpp"
#include "comm/mpi/transport.hpp"
#include "engine/agree.hpp"
#include "engine/collect.hpp"
#include "engine/process_memory.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;

/// A serial step that costs more than this is not played beside the case; about two seconds of one core.
constexpr double affordable_flops = 1e11;

double relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-30); }

double sum_over(MPI_Comm comm, double value) {
  check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, comm), "adding up the loss");
  return value;
}

void fail(record::CaseResult& result, std::string reason) {
  if (result.status != record::Status::ok) return;
  result.status = record::Status::wrong;
  result.reason = std::move(reason);
}

/// The first step's loss and every gradient tensor against the serial reference. Collective.
void check_first_step(const Session& session, MPI_Comm comm, const Reference& reference,
                      record::CaseResult& result) {
  const auto gradients = gather(session, Which::gradients, comm);
  if (session.rank() != 0) return;
  Check found;
  found.loss_error = relative(result.losses[0], reference.losses[0]);
  found.gradients = compare(gradients, reference.gradients);
  result.max_loss_error = found.loss_error;
  result.max_gradient_error = found.gradients.worst;
  const Tolerance tolerance = tolerance_for(session.layout().shape.dtype);
  if (!found.passes(tolerance)) fail(result, found.failure(tolerance));
}

void check_losses(record::CaseResult& result) {
  for (std::size_t s = 0; s < result.losses.size(); ++s)
    if (!std::isfinite(result.losses[s]))
      fail(result, fmt::format("the loss of step {} is not finite", s + 1));
}

}  // namespace

/// Communicator of the first `count` ranks; MPI_COMM_NULL on the others.
struct Job::Members {
  MPI_Comm comm = MPI_COMM_NULL;
  Members(MPI_Comm world, int rank, int count) {
    check(MPI_Comm_split(world, rank < count ? 0 : MPI_UNDEFINED, rank, &comm), "MPI_Comm_split");
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;
  ~Members() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

Tolerance tolerance_for(model::Dtype dtype) {
  return dtype == model::Dtype::fp32 ? Tolerance{}
                                     : Tolerance{.loss = 1e-3, .gradient = 1e-2, .weights = 1e-2};
}

bool Check::passes(const Tolerance& t) const {
  // Written so that not-a-number fails.
  return loss_error <= t.loss && gradients.worst <= t.gradient && weights.worst <= t.weights;
}

std::string Check::failure(const Tolerance& t) const {
  if (!(loss_error <= t.loss))
    return fmt::format("losses differ from the serial reference by {:.1e} (allowed {:.0e})", loss_error,
                       t.loss);
  if (!(gradients.worst <= t.gradient))
    return fmt::format("gradient of {} differs from the serial reference by {:.1e} (allowed {:.0e})",
                       gradients.tensor, gradients.worst, t.gradient);
  return fmt::format("{} differs from the serial reference by {:.1e} after the last step (allowed {:.0e})",
                     weights.tensor, weights.worst, t.weights);
}

Job::Job(MPI_Comm world, const JobOptions& options) : world_(world), options_(options) {
  check(MPI_Comm_rank(world, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(world, &ranks_), "MPI_Comm_size");
}

/// All ranks of `comm` get a session, or all throw the same.
std::unique_ptr<Session> Job::open_session(const deck::Case& c, MPI_Comm comm,
                                           const SessionOptions& options) const {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  std::unique_ptr<Session> session;
  bool agreed = false;
  const MakeTransport make = [&](const schedule::Program& program, model::Buffer staging) {
    agreed = true;
    agree(comm, [] {});  // the transport's construction is collective: everybody must have come this far
    return make_transport(c.transport, {comm, program, staging, options_.waiting, options_.shared_devices});
  };
  try {
    session = std::make_unique<Session>(c, rank, make, options);
  } catch (...) {
    if (!agreed) agree(comm, [] { throw; });
    throw;
  }
  return session;
}

Check Job::verify(const deck::Case& c, int steps, const Reference& reference, const Hooks& hooks) {
  Check result;
  const Members members(world_, rank_, c.ranks);
  if (members.comm != MPI_COMM_NULL) {
    SessionOptions with = session_options();
    with.hooks = hooks;
    const auto session = open_session(c, members.comm, with);
    for (int s = 0; s < steps; ++s) {
      session->prepare();
      const double loss = sum_over(members.comm, session->step().loss);
      if (rank_ == 0) result.loss_error = std::max(result.loss_error, relative(loss, reference.losses[s]));
      if (rank_ == 0 && std::isnan(loss)) result.loss_error = loss;
      if (s == 0) {
        const auto gradients = gather(*session, Which::gradients, members.comm);
        if (rank_ == 0) result.gradients = compare(gradients, reference.gradients);
      }
    }
    const auto weights = gather(*session, Which::weights, members.comm);
    if (rank_ == 0) result.weights = compare(weights, reference.weights);
  }
  wait_for_all(world_);
  return result;
}

SessionOptions Job::session_options() const {
  SessionOptions options;
  options.patience = options_.patience;
  options.on_stall = [](const std::string& report) {
    fmt::print(stderr, "minitaw: {}\n", report);
    std::fflush(stderr);
    // The others have stalled too; let each of them say where before anybody pulls the job down.
    std::this_thread::sleep_for(std::chrono::seconds(2));
  };
  return options;
}

void Job::play(const deck::Case& c, MPI_Comm comm, bool checked, record::CaseResult& result) {
  reset_peak_memory();
  const auto session = open_session(c, comm, session_options());
  TimedSteps steps(session->program(), c.steps);
  session->transport().reset_counters();
  for (int s = 0; s < c.warmup + c.steps; ++s) {
    session->prepare();
    check(MPI_Barrier(comm), "MPI_Barrier");
    const Session::Step step = session->step();
    result.losses.push_back(sum_over(comm, step.loss));
    if (s >= c.warmup) steps.add(session->player(), step.time);
    if (s == 0 && checked) check_first_step(*session, comm, references_.find(c, 1), result);
  }
  const schedule::ByteMatrix sent = session->transport().sent();
  collect(*session, steps, peak_memory(), options_.timeline, comm, result);
  collect_bytes(sent, schedule::bytes(session->program(), session->layout()), rank_, c.warmup + c.steps, comm,
                result);
  check_losses(result);
  result.attention = kernels::name_of(session->model().attention());
  result.transport = c.ranks == 1 ? "none" : session->transport_name();
}

record::CaseResult Job::run(const deck::Case& c) {
  record::CaseResult result;
  result.settings = c;
  result.started = record::utc_now();
  const bool checked = flops(c, 1) <= affordable_flops;
  agree(world_, [&] {
    if (rank_ == 0 && checked) references_.add(c, 1);
  });
  const Members members(world_, rank_, c.ranks);
  try {
    if (members.comm != MPI_COMM_NULL) play(c, members.comm, checked, result);
  } catch (const AgreedError& e) {
    result.status = record::Status::error;
    result.reason = e.what();
  }
  wait_for_all(world_);
  return result;
}

}  // namespace minitaw::engine
