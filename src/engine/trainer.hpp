#pragma once

#include <functional>
#include <map>
#include <memory>

#include "comm/transport.hpp"
#include "deck/deck.hpp"
#include "engine/actions.hpp"
#include "engine/executor.hpp"
#include "engine/make_transport.hpp"
#include "model/data.hpp"

namespace minitaw::engine {

/// How a trainer gets its transport, once program and staging memory exist.
using MakeTransport = std::function<NamedTransport(const schedule::Program& program, model::Buffer staging)>;
/// For a rank that is alone.
[[nodiscard]] NamedTransport no_transport(const schedule::Program& program, model::Buffer staging);

/// What tests change.
struct Hooks {
  /// Changes the validated program before it is executed; defects are planted here.
  std::function<void(schedule::Program&)> inject_fault;
  MakeQueues make_queues = engine::make_queues;
};

struct TrainerOptions {
  /// A step in which no lane moves for this long is reported and given up.
  Watchdog::Seconds stall_limit{600};
  std::function<void(const std::string& report)> on_stall = [](const std::string&) {};
  comm::mpi::WaitPolicy waiting;  ///< of the communication thread
  Hooks hooks;
};

/// One rank of one case: program, memory, model and lanes, ready to execute steps.
class Trainer {
public:
  /// Throws InputError for a case that cannot be built, LogicError if its program is not valid.
  Trainer(const deck::Case& c, int rank, const MakeTransport& make_transport, const TrainerOptions& options);

  /// Readies the tokens of the next step, outside of its time.
  void prepare();
  /// Executes it; call prepare() before. Returns its seconds on this rank; where they went is said by
  /// account(), of all ranks together. Stops the host nowhere in between.
  double step();
  /// This rank's part of the mean loss of the last step.
  [[nodiscard]] double loss() const;
  /// Steps executed so far.
  [[nodiscard]] int steps() const { return steps_; }

  [[nodiscard]] const schedule::Program& program() const { return program_; }
  [[nodiscard]] const model::Layout& layout() const { return layout_; }
  [[nodiscard]] const schedule::Footprint& footprint() const { return footprint_; }
  [[nodiscard]] const Arena& arena() const { return arena_; }
  [[nodiscard]] const State& state() const { return state_; }
  [[nodiscard]] comm::Transport& transport() { return *transport_.transport; }
  [[nodiscard]] const std::string& transport_name() const { return transport_.name; }
  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] const Executor& executor() const { return *executor_; }
  [[nodiscard]] int rank() const { return rank_; }

private:
  void rehearse();

  int rank_;
  schedule::Program program_;
  model::Layout layout_;
  schedule::Footprint footprint_;
  Arena arena_;
  State state_;
  model::Model model_;
  model::TokenSource tokens_;
  std::map<int, std::int64_t> first_sequences_;  ///< of each of the rank's micro-batches
  Actions actions_;
  NamedTransport transport_;
  std::unique_ptr<Executor> executor_;
  int steps_ = 0;
};

/// The step's loss is the mean over all of its tokens.
[[nodiscard]] double loss_scale(const deck::Case& c);
[[nodiscard]] model::AdamW adamw_of(const deck::Case& c);

/// The program of a case, validated.
[[nodiscard]] schedule::Program program_of(const deck::Case& c);

}  // namespace minitaw::engine
