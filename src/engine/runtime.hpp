// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include "case/case.hpp"
#include "engine/arena.hpp"
#include "engine/executor.hpp"

namespace minitaw::engine {
/// One rank of one case: finds the memory of each action's operands, and calls the model or the
/// transport.
class Runtime final : public Starter {
public:
  /// `rank`: of the job.
  Runtime(Plan plan, int rank, const StepOptions& options = {});

  /// Sets the transport; nullptr: the rank is alone. To be called before step().
  void connect(std::unique_ptr<comm::Transport> transport = nullptr);

  /// Prepares the tokens of the next step; not part of its time.
  void prepare();
  /// Executes the step that prepare() has prepared, without a stop of the host; returns its seconds
  /// on this rank.
  double step();
  /// This rank's part of the mean loss of the last step.
  double loss() const;

  const schedule::Program& program() const { return program_; }

  /// This rank's actions.
  const schedule::RankProgram& own_program() const { return program_.ranks[own_]; }

  const model::Layout& layout() const { return layout_; }

  const schedule::Footprint& footprint() const { return plan_->memory[own_]; }

  const Arena& arena() const { return arena_; }

  comm::Transport& transport() { return *transport_; }

  const model::Model& model() const { return model_; }

  const Executor& executor() const { return *executor_; }

  int rank() const { return rank_; }

  /// This rank's number in the program.
  int own() const { return own_; }

private:
  /// Called by the threads of lanes.
  [[nodiscard]] comm::Transport::Started start(const schedule::Action& action) override;
  void visit(const schedule::Action& action, model::Direction direction);
  void update(const schedule::Action& action);
  void add(const schedule::Action& action) const;
  void load(const schedule::Action& action) const;
  model::EndBuffers ends(const schedule::Action& action) const;
  /// The buffer of an operand; empty if the action has none.
  model::Buffer slot(const schedule::Action& action, schedule::Operand operand) const;
  /// Returns the part of an operand's slot that a transfer, an addition, a load or an update uses.
  model::Buffer part(const schedule::Action& action, schedule::Operand operand) const;
  int peer_of(const schedule::Action& action) const;
  comm::Message message(const schedule::Action& action) const;
  comm::Collective collective(const schedule::Action& action) const;

  model::Dtype dtype_of(schedule::Slot slot) const {
    return schedule::dtype_of(slot.cls, layout_.shape);
  }

  void rehearse();

  Plan plan_;
  const schedule::Program& program_;
  int rank_, own_;  ///< numbers in the job and in the program
  model::Layout layout_;
  Arena arena_;
  model::Model model_;
  model::TokenSource tokens_;
  std::map<int, model::MicroBatch> batches_;  ///< tokens, by micro-batch of the program
  model::AdamW adamw_;
  model::ExecutionSpace exec_;  ///< the compute lane's
  StepOptions options_;
  std::unique_ptr<comm::Transport> transport_;
  std::unique_ptr<Executor> executor_;
  int steps_ = 0;  ///< prepared so far
};

/// 1 / tokens of a step: its loss is their mean.
double loss_scale(const Case& c);
model::AdamW adamw_of(const Case& c);
}  // namespace minitaw::engine
