#include "engine/job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "engine/agree.hpp"
#include "engine/collect.hpp"
#include "engine/memory.hpp"
#include "engine/queue.hpp"
#include "kernels/kernels.hpp"
#include "model/block.hpp"
#include "model/layout.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;

/// A serial step that costs more than this is not executed beside the case; about two seconds of one core.
constexpr double affordable_flops = 1e11;

/// Rank 0 writes down what it knows before the others end the job.
constexpr std::chrono::seconds time_to_record{5};

/// The ranks have agreed to leave the case.
struct Left {
  Leave why;
};

/// Sums the loss over the ranks, and with it, at no cost, who wants to leave.
class StepSum {
public:
  StepSum(MPI_Comm comm, double loss, Leave mine) : sums_{loss} {
    sums_[static_cast<std::size_t>(mine)] += mine == Leave::no ? 0 : 1;
    check(
        MPI_Allreduce(MPI_IN_PLACE, sums_.data(), static_cast<int>(sums_.size()), MPI_DOUBLE, MPI_SUM, comm),
        "adding up the loss");
  }
  [[nodiscard]] double loss() const { return sums_[0]; }
  [[nodiscard]] Leave leave() const {
    for (const Leave why : {Leave::signal, Leave::time_limit, Leave::case_limit})
      if (sums_[static_cast<std::size_t>(why)] > 0) return why;
    return Leave::no;
  }

private:
  std::array<double, 4> sums_;  ///< loss, then votes by why
};

/// The process ends soon even if the MPI library does not manage to end the job.
void end_job() {
  alarm(10);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void tell(const std::string& report) {
  fmt::print(stderr, "minitaw: {}\n", report);
  std::fflush(stderr);
}

void fail(record::CaseResult& result, std::string reason) {
  if (result.status != record::Status::ok) return;
  result.status = record::Status::wrong;
  result.reason = std::move(reason);
}

/// The first step's loss and every gradient tensor against the serial reference. Collective.
void check_first_step(const Session& session, const deck::Case& c, MPI_Comm comm, const Reference& reference,
                      record::CaseResult& result) {
  const auto gradients = gather(session, Which::gradients, comm);
  if (session.rank() != 0) return;
  Check found;
  found.first = {loss_error(result.losses[0], reference.losses[0]),
                 compare_gradients(gradients, reference.gradients)};
  result.max_loss_error = found.first.loss;
  result.max_gradient_error = found.first.gradient.worst;
  const Tolerance tolerance = serial_tolerance(c);
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

Job::Job(MPI_Comm world, const JobOptions& options)
    : world_(world), options_(options), rank_(comm::mpi::rank_in(world)), ranks_(comm::mpi::size_of(world)),
      hang_([this](const std::string& report) { tell(fmt::format("rank {}: {}", rank_, report)); }),
      guard_([this](const std::string& report) {
        if (rank_ != 0) std::this_thread::sleep_for(time_to_record);
        hang_(report);
        end_job();
      }) {}

void Job::require_possible(const deck::Case& c) const {
  require_transport(c.transport, options_.shared_devices);
  const kernels::Attention wanted = kernels::parse_attention(c.attention);
  const kernels::AttentionSizes sizes = model::attention_sizes(c.shape);
  model::with_element(c.shape.dtype, [&]<class E>(E) { (void)kernels::resolve_attention<E>(wanted, sizes); });
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

bool Job::has_time_to_check(const deck::Case& c) { return flops(c, 1) <= affordable_flops; }

Check Job::verify(const deck::Case& c, int steps, const Reference& reference, const Hooks& hooks) {
  Check result;
  const Members members(world_, rank_, c.ranks);
  if (members.comm != MPI_COMM_NULL) {
    SessionOptions with = session_options(options_.stall_limit);
    with.hooks = hooks;
    const auto session = open_session(c, members.comm, with);
    const Reference executed = run_steps(*session, c, steps, members.comm);
    if (rank_ == 0) result = compare(executed, reference);
  }
  wait_for_all(world_);
  return result;
}

SessionOptions Job::session_options(std::chrono::duration<double> stall_limit) const {
  SessionOptions options;
  options.waiting = options_.waiting;
  options.stall_limit = stall_limit;
  options.on_stall = [this](const std::string& report) {
    tell(report);
    // The others have stalled too; let each of them say where before anybody pulls the job down, and rank 0
    // write down what it knows.
    std::this_thread::sleep_for(std::chrono::seconds(2) + (rank_ == 0 ? 0 : 1) * time_to_record);
    guard_.expect("giving up a stalled step", time_to_record);
  };
  return options;
}

void Job::execute(const deck::Case& c, MPI_Comm comm, bool checked, const Limits& limits,
                  record::CaseResult& result) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ask = [&] {
    const Leave mine = limits.leave();
    const bool long_ago = std::chrono::steady_clock::now() - begin > limits.whole;
    return mine == Leave::no && long_ago ? Leave::case_limit : mine;
  };
  reset_peak_memory();
  const auto session = open_session(c, comm, session_options(limits.stall_limit));
  TimedSteps steps(session->program(), c.steps);
  StepMeter meter(options_.meter.get());
  session->transport().reset_counters();
  const int count = c.warmup + c.steps;
  for (int s = 0; s < count; ++s) {
    guard_.expect(fmt::format("getting ready for step {}", s + 1), limits.stall_limit);
    session->prepare();
    if (s == c.warmup) meter.begin();
    check(MPI_Barrier(comm), "MPI_Barrier");
    guard_.pause();
    const Session::Step step = session->step();
    if (s >= c.warmup) meter.sample();
    guard_.expect(fmt::format("gathering what step {} left", s + 1), limits.stall_limit);
    const StepSum sum(comm, step.loss, ask());
    if (s + 1 < count && sum.leave() != Leave::no) throw Left{sum.leave()};
    result.losses.push_back(sum.loss());
    if (s >= c.warmup) steps.add(session->executor(), step.time);
    if (s == 0 && checked) check_first_step(*session, c, comm, references_.find(c), result);
  }
  meter.end();
  const schedule::ByteMatrix sent = session->transport().sent();
  meter.collect(comm, result);
  collect(*session, steps, peak_memory(), options_.timeline, comm, result);
  result.bytes_source = session->transport().bytes_source();
  collect_bytes(sent, schedule::bytes(session->program(), session->layout()), rank_, c.warmup + c.steps, comm,
                result);
  check_losses(result);
  result.attention = kernels::name_of(session->model().attention());
  result.matmul_algorithms =
      fmt::format("{}", fmt::join(kernels::choices(lane_space(schedule::Lane::compute)), "\n"));
  result.transport = c.ranks == 1 ? "none" : session->transport_name();
}

Played Job::run(const deck::Case& c, const Limits& limits) {
  Played executed;
  record::CaseResult& result = executed.result;
  result.settings = c;
  result.started = record::utc_now();
  const auto failed = [&](record::Status status, const std::exception& why) {
    result.status = status;
    result.reason = why.what();
  };
  guard_.expect("getting ready for a case", limits.stall_limit);
  try {
    const bool checked = limits.check && has_time_to_check(c);
    agree(world_, [&] {
      if (rank_ == 0 && checked) references_.add(c);
    });
    const Members members(world_, rank_, c.ranks);
    if (members.comm != MPI_COMM_NULL) execute(c, members.comm, checked, limits, result);
  } catch (const Left& left) {
    executed.left = left.why;
  } catch (const AgreedOutOfMemory& e) {
    failed(record::Status::oom, e);
  } catch (const AgreedError& e) {
    failed(record::Status::error, e);
  } catch (const InputError& e) {
    failed(record::Status::error, e);
  }
  // A rank that has no part in the case waits here for all of it.
  guard_.expect("waiting for the end of a case",
                rank_ < c.ranks ? limits.stall_limit : limits.whole + limits.stall_limit);
  wait_for_all(world_);
  check(MPI_Bcast(&executed.left, sizeof executed.left, MPI_BYTE, 0, world_), "sharing why a case was left");
  guard_.pause();
  return executed;
}

}  // namespace minitaw::engine
