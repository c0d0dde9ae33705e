#pragma once

#include <Kokkos_Core.hpp>
#include <map>
#include <vector>

#include "engine/state.hpp"
#include "model/data.hpp"
#include "model/model.hpp"

namespace minitaw::engine {

/// Executes the compute lane's actions: looks up slots and calls the model.
class Compute {
public:
  Compute(model::Model& model, const Arena& arena, const State& state, model::AdamW adamw, double* loss);

  /// Tokens of the micro-batches that the next step computes, each with the number of its first sequence in
  /// the step; `step` counts from 1.
  void begin_step(model::TokenSource& tokens, const std::map<int, std::int64_t>& first_sequences, int step);

  /// Enqueues the action on the lane's space.
  void run(const schedule::Action& action);

  /// Runs every kind of compute action of the program once, in issue order, whatever the slots hold, and
  /// waits for it: one visit of each kind of shard, writing and adding. Slots hold nothing of use then.
  void rehearse(const schedule::RankProgram& program);

private:
  [[nodiscard]] model::Buffer slot(const schedule::Action& action, int operand) const;
  /// Of the elements in a gradient or total slot.
  [[nodiscard]] model::Dtype gradient_type(schedule::Slot gradient) const;
  void zero(model::Buffer buffer) const;
  void add_kernels() const;
  void backward(const schedule::Action& action);
  void update(const schedule::Action& action);
  [[nodiscard]] const model::MicroBatch& batch(const schedule::Action& action) const;

  model::ExecutionSpace exec_;
  model::Model& model_;
  const Arena& arena_;
  const State& state_;
  model::AdamW adamw_;
  double* loss_;
  int step_ = 0;
  std::map<int, model::MicroBatch> batches_;
};

}  // namespace minitaw::engine
