#include "engine/trainer.hpp"

#include "deck/deck.hpp"
#include "engine/queue.hpp"
#include "kernels/kernels.hpp"
#include "schedule/validate.hpp"

namespace minitaw::engine {
namespace {

using Loss = Kokkos::View<double, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;

schedule::Program with_fault(schedule::Program program, const Hooks& hooks) {
  if (hooks.inject_fault) hooks.inject_fault(program);
  return program;
}

std::map<int, std::int64_t> first_sequences(const deck::Case& c, const schedule::RankProgram& rank) {
  std::map<int, std::int64_t> result;
  for (const int m : micro_batches_of(rank)) result[m] = deck::first_sequence(c, m);
  return result;
}

}  // namespace

NamedTransport no_transport(const schedule::Program&, model::Buffer) {
  return {std::make_unique<comm::SoloTransport>(), "none"};
}

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

Trainer::Trainer(const deck::Case& c, int rank, const MakeTransport& make_transport,
                 const TrainerOptions& options)
    : rank_(rank), program_(with_fault(program_of(c), options.hooks)),
      layout_(model::make_layout(deck::shape_of_rank(c, rank), schedule::cut_of(program_))),
      footprint_(schedule::memory(program_, layout_)[rank]), arena_(footprint_),
      state_(program_, rank, layout_, arena_),
      model_(lane_space(schedule::Lane::compute), layout_, loss_scale(c), arena_.workspace(),
             kernels::parse_attention(c.attention), state_.embeddings_part()),
      tokens_(c.shape, c.data, c.seed), first_sequences_(first_sequences(c, program_.ranks[rank])),
      actions_(program_, rank, model_, arena_, state_, adamw_of(c)) {
  rehearse();
  transport_ = make_transport(program_, arena_.staging());
  comm::Transport& transport = *transport_.transport;
  actions_.connect(transport);
  const WatchdogCalls watchdog{.on_stall = options.on_stall,
                               .cancel = [&transport] { transport.cancel(); },
                               .poll = [&transport] { transport.poll(); }};
  executor_ = std::make_unique<Executor>(
      program_, rank, [this](const schedule::Action& action) { return actions_.start(action); },
      ExecutorOptions{options.stall_limit, watchdog, options.waiting, transport.on_stream(),
                      transport.messages_at_once(), options.hooks.make_queues});
  state_.initialise(c.seed);
}

/// A device's first launch of a kernel may stop it to load the kernel's code, which would never end while a
/// kernel of NCCL waits for another rank: every kernel runs once before ranks wait for each other. Matrix
/// products choose their algorithms.
void Trainer::rehearse() {
  if (kernels::on_host) return;
  const model::ExecutionSpace exec = lane_space(schedule::Lane::compute);
  actions_.begin_step(tokens_, first_sequences_, 1);
  kernels::choose_by_time(exec, true);
  actions_.rehearse();
  kernels::choose_by_time(exec, false);
}

void Trainer::prepare() {
  actions_.begin_step(tokens_, first_sequences_, steps_ + 1);
  Kokkos::deep_copy(Loss(arena_.loss()), 0.0);
}

double Trainer::step() {
  ++steps_;
  return executor_->step();
}

double Trainer::loss() const {
  double loss = 0;
  Kokkos::deep_copy(loss, Loss(arena_.loss()));
  return loss;
}

}  // namespace minitaw::engine
