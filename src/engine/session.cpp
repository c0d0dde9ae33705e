#include "engine/session.hpp"

#include "deck/deck.hpp"
#include "engine/queue.hpp"
#include "kernels/kernels.hpp"
#include "schedule/validate.hpp"

namespace minitaw::engine {
namespace {

using Loss = Kokkos::View<double, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;

schedule::Program with_fault(schedule::Program program, const SessionOptions& options) {
  if (options.hooks.inject_fault) options.hooks.inject_fault(program);
  return program;
}

std::map<int, std::int64_t> first_sequences(const deck::Case& c, const schedule::RankProgram& rank) {
  std::map<int, std::int64_t> result;
  for (const int m : micro_batches_of(rank)) result[m] = deck::first_sequence(c, m);
  return result;
}

/// A device's first launch of a kernel may stop it to load the kernel's code, which would never end while a
/// kernel of NCCL waits for another rank: every kernel has run once before. Matrix products choose their
/// algorithms.
Compute rehearsed(Compute compute, const schedule::RankProgram& program, model::TokenSource& tokens,
                  const std::map<int, std::int64_t>& first_sequences) {
  if (kernels::on_host) return compute;
  const model::ExecutionSpace exec = lane_space(schedule::Lane::compute);
  compute.begin_step(tokens, first_sequences, 1);
  kernels::choose_by_time(exec, true);
  compute.rehearse(program);
  kernels::choose_by_time(exec, false);
  return compute;
}

}  // namespace

double loss_scale(const deck::Case& c) { return 1.0 / deck::tokens_of_step(c); }

model::AdamW adamw_of(const deck::Case& c) {
  model::AdamW adamw;
  adamw.learning_rate = static_cast<float>(c.learning_rate);
  return adamw;
}

schedule::Program program_of(const deck::Case& c) {
  schedule::Program program = schedule::build(deck::request_of(c));
  schedule::require_valid(program);
  return program;
}

Session::Session(const deck::Case& c, int rank, const MakeTransport& make_transport,
                 const SessionOptions& options)
    : rank_(rank), program_(with_fault(program_of(c), options)),
      layout_(model::make_layout(deck::shape_of_rank(c, rank), schedule::cut_of(program_))),
      footprint_(schedule::memory(program_, layout_)[rank]), arena_(footprint_),
      state_(program_, rank, layout_, arena_),
      model_(lane_space(schedule::Lane::compute), layout_, loss_scale(c), arena_.workspace(),
             kernels::parse_attention(c.attention), embeddings_part_of(program_, rank, layout_)),
      tokens_(c.shape, c.data, c.seed), first_sequences_(first_sequences(c, program_.ranks[rank])),
      compute_(rehearsed(Compute(model_, arena_, state_, adamw_of(c), arena_.loss()), program_.ranks[rank],
                         tokens_, first_sequences_)),
      transport_(make_transport(program_, arena_.staging())),
      transfers_(std::make_unique<Transfers>(*transport_.transport, arena_, program_, rank, layout_)) {
  const WatchdogCalls watchdog{.on_stall = options.on_stall,
                               .cancel = [this] { transport_.transport->cancel(); },
                               .poll = [this] { transport_.transport->poll(); }};
  executor_ = std::make_unique<Executor>(program_, rank, compute_, *transfers_,
                                         ExecutorOptions{options.stall_limit, watchdog, options.waiting,
                                                         transport_.transport->on_stream(),
                                                         options.hooks.make_queues});
  state_.initialise(c.seed);
}

void Session::prepare() {
  compute_.begin_step(tokens_, first_sequences_, steps_ + 1);
  Kokkos::deep_copy(Loss(arena_.loss()), 0.0);
}

Session::Step Session::step() {
  Step step;
  step.time = execute();
  Kokkos::deep_copy(step.loss, Loss(arena_.loss()));
  return step;
}

StepTime Session::execute() {
  ++steps_;
  return executor_->execute();
}

}  // namespace minitaw::engine
