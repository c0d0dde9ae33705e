#include "engine/trainer.hpp"

#include "engine/queue.hpp"
#include "kernels/kernels.hpp"
#include "schedule/validate.hpp"

namespace minitaw::engine {
namespace {

using Loss = Kokkos::View<double, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;

schedule::Program with_fault(schedule::Program program, const StepOptions& options) {
  options.inject_fault(program);
  return program;
}

std::map<int, std::int64_t> first_sequences(const deck::Case& c, const schedule::RankProgram& rank) {
  std::map<int, std::int64_t> result;
  for (const int m : micro_batches_of(rank)) result[m] = deck::first_sequence(c, m);
  return result;
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

Trainer::Trainer(const deck::Case& c, int rank, const StepOptions& options)
    : rank_(rank), program_(with_fault(program_of(c), options)),
      layout_(model::make_layout(deck::shape_of_rank(c, rank), schedule::cut_of(program_))),
      footprint_(schedule::memory(program_, layout_)[rank]), arena_(footprint_),
      state_(program_, rank, layout_, arena_),
      model_(lane_space(schedule::Lane::compute), layout_, loss_scale(c), arena_.workspace(),
             kernels::parse_attention(c.attention), state_.embeddings_part()),
      tokens_(c.shape, c.data, c.seed), first_sequences_(first_sequences(c, program_.ranks[rank])),
      adamw_(adamw_of(c)), exec_(lane_space(schedule::Lane::compute)), options_(options) {
  if (!kernels::on_host) rehearse();
  state_.initialise(c.seed);
}

void Trainer::connect(std::unique_ptr<comm::Transport> transport) {
  transport_ = std::move(transport);
  executor_ = std::make_unique<Executor>(
      program_, rank_, [this](const schedule::Action& action) { return start(action); }, *transport_,
      options_);
}

void Trainer::prepare() {
  ++steps_;
  for (const auto& [m, first] : first_sequences_)
    batches_.try_emplace(m, layout_.shape).first->second.fill(tokens_, steps_ - 1, first);
  Kokkos::deep_copy(Loss(arena_.loss()), 0.0);
}

double Trainer::step() { return executor_->step(); }

double Trainer::loss() const {
  double loss = 0;
  Kokkos::deep_copy(loss, Loss(arena_.loss()));
  return loss;
}

}  // namespace minitaw::engine
