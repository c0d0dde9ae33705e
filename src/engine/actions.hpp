#pragma once

#include <map>

#include "comm/transport.hpp"
#include "engine/memory.hpp"
#include "model/data.hpp"
#include "model/model.hpp"

namespace minitaw::engine {

/// Executes the actions of one rank: looks up slots and sizes, and calls the model for what is computed and
/// the transport for what moves. Lanes call it from their threads, the compute lane from one of its own.
class Actions {
public:
  /// All but `adamw` outlive this.
  Actions(const schedule::Program& program, int rank, model::Model& model, const Arena& arena,
          const State& state, model::AdamW adamw);

  /// Tokens of the micro-batches that the next step computes, each with the number of its first sequence in
  /// the step; `step` counts from 1.
  void begin_step(model::TokenSource& tokens, const std::map<int, std::int64_t>& first_sequences, int step);

  /// Runs every kind of compute action of the program once, in issue order, whatever the slots hold, and
  /// waits for it: one visit of each kind of shard, writing and adding. Slots hold nothing of use then.
  void rehearse();

  /// Before the first action that moves anything.
  void connect(comm::Transport& transport) { transport_ = &transport; }

  /// Enqueues a computation on the compute lane's space; starts a message, a collective, an addition to an
  /// accumulator, or the loading of a slice. Returns the transfer that is under way then, if any.
  [[nodiscard]] comm::Transport::Started start(const schedule::Action& action);

private:
  void compute(const schedule::Action& action);
  void update(const schedule::Action& action);
  void add(const schedule::Action& action) const;
  void load(const schedule::Action& action) const;
  void add_kernels() const;
  [[nodiscard]] model::Buffer slot(const schedule::Action& action, int operand) const {
    return arena_.slot(action.slots[operand]);
  }
  /// What a transfer is about, in its slot number `operand`.
  [[nodiscard]] model::Buffer part(const schedule::Action& action, int operand = 0) const;
  [[nodiscard]] comm::Message message(const schedule::Action& action) const;
  [[nodiscard]] comm::Collective collective(const schedule::Action& action) const;
  /// Of the elements in a slot of gradients.
  [[nodiscard]] model::Dtype gradient_type(schedule::Slot gradient) const;

  const schedule::Program& program_;
  int rank_;
  model::ExecutionSpace exec_;
  model::Model& model_;
  const model::Layout& layout_;
  const Arena& arena_;
  const State& state_;
  model::AdamW adamw_;
  comm::Transport* transport_ = nullptr;
  int step_ = 0;
  std::map<int, model::MicroBatch> batches_;
};

}  // namespace minitaw::engine
