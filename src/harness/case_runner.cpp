// SPDX-License-Identifier: BSD-3-Clause
#include "harness/case_runner.hpp"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/ranges.h>
#include <new>
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "engine/make_transport.hpp"
#include "harness/collect.hpp"

namespace minitaw::harness {
namespace {
using comm::mpi::check_mpi;
/// The most that a serial step beside the case may cost: about two seconds of one core.
constexpr double affordable_flops = 1e11;
/// Fills memory before verify() executes a case: NaN in fp32 and in bf16, so that what is read
/// before it is written shows in the losses.
constexpr std::byte unwritten{0xff};

/// Kokkos and CUDA say it only in the message.
bool is_out_of_memory(std::string_view message) {
  return message.find("failed to allocate") != message.npos ||
         message.find("out of memory") != message.npos;
}

/// Sums the loss over ranks, and takes the gravest reason to stop that any rank has.
std::pair<double, StopReason> sum_loss(MPI_Comm comm, double loss, StopReason why) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, comm), "adding up the loss");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &why, 1, MPI_INT, MPI_MAX, comm), "agreeing to go on");
  return {loss, why};
}

/// Bytes that verify() lets a case leave unwritten. Partial sums of a norm's gain are planned for
/// the device that makes most of them. The host's attention keeps the sums of output x gradient
/// that other kernels write.
std::size_t spare_bytes(const engine::Runtime& runtime) {
  const model::Layout& layout = runtime.layout();
  const model::Shape shape = model::largest_slice(layout.shape);
  std::int64_t sums = 0;
  for (int slice = 0; slice < shape.slices; ++slice) {
    const std::int64_t tokens = layout.shape_of(slice).tokens();
    const std::int64_t planned = std::min(tokens, model::most_gain_sums);
    sums = std::max(sums, (planned - kernels::rmsnorm_chunks(tokens)) * shape.hidden);
  }
  const model::BlockRegions scratch =
      model::plan_workspace(layout, schedule::duties_of(runtime.own_program())).block;
  const auto [begin, bytes] = scratch[model::Intermediate::delta];
  const model::Region& product = scratch[model::Intermediate::product];
  const bool kept = begin + bytes > product.offset + product.bytes &&
                    runtime.model().attention().kernel == kernels::Attention::host;
  // 512: this region and the one before it are rounded up.
  return std::max<std::size_t>(sums * sizeof(float), kept ? bytes + 512 : 0);
}

/// Compares the first step's loss and every gradient tensor with the serial reference. Collective.
void check_first_step(const RunningCase& running, const Training& reference, CaseResult& result) {
  const Training executed{.losses = {result.losses[0]},
      .gradients = gather(running.runtime, Which::gradients, running.comm)};
  if (running.runtime.rank() != 0)
    return;
  const Check found = compare(executed, reference);
  result.max_loss_error = found.first.loss;
  result.max_gradient_error = found.first.gradient.worst;
  const Tolerance tolerance = serial_tolerance(running.asked);
  if (!found.passes(tolerance))
    fail(result, found.failure(tolerance));
}

/// Adds the kernels and the transport that ran; losses that are no numbers fail the case.
void describe(engine::Runtime& runtime, CaseResult& result) {
  for (std::size_t s = 0; s < result.losses.size(); ++s)
    if (!std::isfinite(result.losses[s]))
      fail(result, fmt::format("the loss of step {} is not finite", s + 1));
  const kernels::AttentionChoice& attention = runtime.model().attention();
  result.attention = kernels::name_of(attention.kernel);
  if (!kernels::on_host && !attention.reason.empty())
    result.remark = fmt::format(
        "attention is the portable kernel, which is slow on a device: {}", attention.reason);
  result.matmul_algorithms = fmt::format(
      "{}", fmt::join(kernels::choices(engine::lane_space(schedule::Lane::compute)), "\n"));
  result.transport = result.asked.ranks == 1 ? "none" : runtime.transport().name();
}

using Cause = AgreedError::Cause;

/// The cause of a failure and the message, in a text that travels; empty: there was none.
std::string failure_of(const std::function<void()>& work) {
  const auto text = [](Cause cause, const std::string& words) {
    return static_cast<char>(cause) + words;
  };
  try {
    work();
  } catch (const InputError& e) {
    return text(Cause::input, e.what());
  } catch (const std::bad_alloc&) {
    return text(Cause::memory, "out of memory");
  } catch (const std::exception& e) {
    return text(is_out_of_memory(e.what()) ? Cause::memory : Cause::other, e.what());
  }
  return {};
}

[[noreturn]] void throw_agreed(const std::string& failure, const std::string& of_rank = "") {
  throw AgreedError(static_cast<Cause>(failure.front()), of_rank + failure.substr(1));
}
}  // namespace

void wait_for_all(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  using namespace std::chrono_literals;
  comm::mpi::wait(
      {&request, 1}, {.spins = 0, .yields = 0, .shortest_sleep = 10us, .longest_sleep = 2ms});
}

void agree(MPI_Comm comm, const std::function<void()>& work, const std::string& host) {
  const std::string mine = failure_of(work);
  wait_for_all(comm);
  const auto [rank, first] = comm::mpi::first_text(mine, comm);
  if (first.empty())
    return;
  int alike = mine == first ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &alike, 1, MPI_INT, MPI_MIN, comm), "comparing errors");
  if (alike != 0)
    throw_agreed(first);
  const std::string where = comm::mpi::broadcast(host, comm, rank);
  throw_agreed(first, fmt::format("rank {}{}{}: ", rank, where.empty() ? "" : " on ", where));
}

void agree_on_root(MPI_Comm comm, const std::function<void()>& work) {
  const std::string mine = comm::mpi::rank_in(comm) == 0 ? failure_of(work) : "";
  wait_for_all(comm);
  if (const std::string first = comm::mpi::broadcast(mine, comm); !first.empty())
    throw_agreed(first);
}

CaseRunner::CaseRunner(MPI_Comm world, const RunnerOptions& options)
    : world_(world),
      options_(options),
      rank_(comm::mpi::rank_in(world)),
      ranks_(comm::mpi::size_of(world)) {}

void CaseRunner::phase(const std::string& name) {
  if (options_.step.watchdog != nullptr)
    options_.step.watchdog->phase(name);
}

void CaseRunner::pause() {
  if (options_.step.watchdog != nullptr)
    options_.step.watchdog->pause();
}

void CaseRunner::tell_between_cases() {
  for (const auto& instrument : options_.instruments)
    instrument->between_cases();
}

void CaseRunner::require_possible(const Case& c) const {
  engine::require_transport(c.transport, options_.shared_devices);
  const kernels::Attention wanted = kernels::parse_attention(c.attention);
  const kernels::AttentionPart whole = model::attention_sizes(c.shape);
  model::with_element(
      c.shape.dtype, [&]<class E>(E) { (void)kernels::resolve_attention<E>(wanted, {whole}); });
}

bool CaseRunner::has_time_to_check(const Case& c) {
  return model::flops_per_token(c.shape) * tokens_of_step(c) <= affordable_flops;
}

Check CaseRunner::verify(const Case& c, int steps, const Training& reference, const Plan& instead) {
  tell_between_cases();
  Check result;
  Plan plan = agreed_plan(c);
  if (instead != nullptr && plan != nullptr)
    plan = instead;
  engine::StepOptions options = options_.step;
  options.fill = unwritten;
  if (const auto begun = begin(plan, options)) {
    const auto& [asked, runtime, comm] = begun->running;
    const Training executed = run_steps(runtime, c, steps, comm);
    CaseResult bytes;
    bytes.asked = c;
    collect_bytes(runtime, steps, comm, bytes);
    const std::string unused =
        first_text(runtime.arena().untouched(unwritten, spare_bytes(runtime)), comm);
    if (rank_ == 0)
      result = compare(executed, reference);
    result.bytes = bytes.reason;
    result.unused = unused;
  }
  wait_for_all(world_);
  return result;
}

Outcome CaseRunner::run(const Case& c, const Limits& limits) {
  Outcome outcome;
  CaseResult& result = outcome.result;
  result.asked = c;
  result.started = utc_now();
  phase("getting ready for a case");
  tell_between_cases();
  std::string left_behind;
  try {
    const Plan plan = agreed_plan(c);
    const Training none;  // for ranks that compare nothing
    const Training* reference = limits.check && has_time_to_check(c) ? &none : nullptr;
    agree_on_root(world_, [&] {
      if (reference != nullptr)
        reference = &references_.of(c);
    });
    topology::MemoryWatch watch;
    if (const auto begun = begin(plan, options_.step))
      outcome.stopped = execute(begun->running, reference, limits, watch, result);
    left_behind = leftover(watch.kept(), watch.process_growth(), blas_bytes(c.shape));
  } catch (const AgreedError& e) {
    result.status = e.cause == Cause::memory ? Status::oom : Status::error;
    result.reason = e.what();
  }
  // A rank without a part in the case waits here without limit.
  if (rank_ < c.ranks)
    phase("waiting for the end of a case");
  else
    pause();
  wait_for_all(world_);
  fail_at_first(result, left_behind, world_);
  check_mpi(MPI_Bcast(&outcome.stopped, sizeof outcome.stopped, MPI_BYTE, 0, world_),
      "sharing why a case stopped");
  tell_between_cases();
  pause();
  return outcome;
}

StopReason CaseRunner::execute(const RunningCase& running,
    const Training* reference,
    const Limits& limits,
    topology::MemoryWatch& watch,
    CaseResult& result) {
  const auto& [c, runtime, comm] = running;
  TimedSteps steps(runtime.program(), c.steps);
  ClockReading begun;
  const int count = c.warmup + c.steps;
  for (int s = 0; s < count; ++s) {
    const int timed = s - c.warmup;  // below zero: warm-up
    phase(fmt::format("getting ready for step {}", s + 1));
    runtime.prepare();
    for (const auto& instrument : options_.instruments)
      if (timed >= 0)
        instrument->before_step(timed);
    if (timed == 0)
      begun = read_clocks();
    check_mpi(MPI_Barrier(comm), "MPI_Barrier");

    const double seconds = runtime.step();
    phase(fmt::format("gathering what step {} left", s + 1));

    for (const auto& instrument : options_.instruments)
      if (timed >= 0)
        instrument->after_step(timed);
    const auto [loss, stop] = sum_loss(comm, runtime.loss(), limits.stop());
    if (s + 1 < count && stop != StopReason::no)
      return stop;
    result.losses.push_back(loss);
    if (timed >= 0)
      steps.add(runtime.executor(), seconds);
    if (s == 0 && reference != nullptr)
      watch.leave_out([&] { check_first_step(running, *reference, result); });
  }
  const auto clocks = seconds_of(begun, read_clocks());
  result.clocks.assign(clocks.begin(), clocks.end());

  topology::MemoryTaken taken = watch.taken();
  if (options_.shared_devices)
    taken.device_begin = 0;  // others take memory there as well
  fail_at_first(result, disagreement(clocks[0], clocks[1]), comm);
  collect(runtime, steps, count, taken, options_.timeline, comm, result);
  for (const auto& instrument : options_.instruments)
    instrument->after_case(running, result);
  describe(runtime, result);
  return StopReason::no;
}

Plan CaseRunner::agreed_plan(const Case& c) {
  Plan made;
  agreed([&] {
    if (rank_ < c.ranks)
      made = plan(c);
  });
  return made;
}

std::unique_ptr<BegunCase> CaseRunner::begin(const Plan& plan, const engine::StepOptions& options) {
  comm::mpi::OwnComm members;
  check_mpi(MPI_Comm_split(world_, plan != nullptr ? 0 : MPI_UNDEFINED, rank_, &members.comm),
      "MPI_Comm_split");
  std::unique_ptr<engine::Runtime> runtime;
  agreed([&] {
    if (plan != nullptr)
      runtime = std::make_unique<engine::Runtime>(plan, rank_, options);
  });
  if (runtime == nullptr)
    return nullptr;
  // This is collective, so it comes after all ranks have a runtime.
  runtime->connect(engine::make_transport(plan->asked.transport,
      {members.comm,
          runtime->program(),
          runtime->arena().staging(),
          options_.step.waiting,
          options_.shared_devices}));
  const RunningCase running{plan->asked, *runtime, members.comm};
  std::unique_ptr<BegunCase> begun(
      new BegunCase{std::move(members), std::move(runtime), running, options_.instruments});
  for (const auto& instrument : options_.instruments)
    instrument->begin_case(running);
  return begun;
}

BegunCase::~BegunCase() {
  for (const auto& instrument : instruments)
    instrument->end_case();
}
}  // namespace minitaw::harness
