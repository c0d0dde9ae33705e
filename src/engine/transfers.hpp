#pragma once

#include "comm/transport.hpp"
#include "engine/memory.hpp"
#include "model/layout.hpp"

namespace minitaw::engine {

/// Starts the actions of communication lanes: looks up slots and sizes and calls the transport.
class Transfers {
public:
  Transfers(comm::Transport& transport, const Arena& arena, const schedule::Program& program, int rank,
            const model::Layout& layout);

  /// A message, a collective, an addition to a total, or the loading of a slice. Returns what is under way
  /// then, if anything.
  [[nodiscard]] comm::Transport::Started start(const schedule::Action& action);
  [[nodiscard]] int messages_at_once() const { return transport_.messages_at_once(); }

private:
  [[nodiscard]] comm::Message message(const schedule::Action& action) const;
  [[nodiscard]] comm::Collective collective(const schedule::Action& action) const;
  /// What the action is about, in its slot number `operand`.
  [[nodiscard]] model::Buffer place(const schedule::Action& action, int operand = 0) const;
  void add(schedule::Lane lane, const schedule::Action& action) const;
  void load(schedule::Lane lane, const schedule::Action& action) const;

  comm::Transport& transport_;
  const Arena& arena_;
  const schedule::Program& program_;
  int rank_;
  const model::Layout& layout_;
};

}  // namespace minitaw::engine
