#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schedule/play.hpp"
#include "schedule/play_sum.hpp"

namespace minitaw::schedule {

/// What a slot holds, by name instead of by numbers.
struct Content {
  enum class Holds : std::uint8_t { nothing, weights, gradient, kept, stash, hidden, hidden_gradient, ends };

  Holds holds = Holds::nothing;
  bool updated = false;           ///< weights: as the optimiser left them
  std::int32_t shard = -1;        ///< weights, kept; hidden: the shard to compute next, in either direction
  std::int32_t micro_batch = -1;  ///< kept, hidden
  std::int32_t slice = -1;        ///< ends gradient: the only slice that counts; -1: all of it
  std::shared_ptr<Sum> sum;       ///< gradient
  std::shared_ptr<std::vector<bool>> slices;  ///< ends: which slices the optimiser has updated; null: none
};

/// Follows the contents of all slots through a play and refuses what computes or moves the wrong thing (a),
/// or loses or repeats a contribution (e).
class Contents : public Listener {
public:
  explicit Contents(const Program& program);

  void local(Place action) override;
  void message(Place send, Place receive) override;
  void collective(std::span<const Place> calls) override;
  /// At the end every micro-batch is computed and every copy of every weight is up to date.
  void check_end() const;

private:
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }
  [[nodiscard]] Content& content(int rank, Slot slot) {
    return slots_[rank][first_[rank][index(slot.cls)] + slot.index];
  }
  [[nodiscard]] const Content& content(int rank, Slot slot) const {
    return slots_[rank][first_[rank][index(slot.cls)] + slot.index];
  }
  static std::size_t index(SlotClass cls) { return static_cast<std::size_t>(cls); }
  [[noreturn]] void fail(Rule rule, Place p, const std::string& what) const;
  [[noreturn]] void unexpected(Place p, Slot slot, const std::string& wanted) const;

  // compute
  void embed(Place p);
  void forward(Place p);
  void loss(Place p);
  void backward(Place p);
  void backward_input(Place p);
  void backward_weight(Place p);
  void embed_backward(Place p);
  void update(Place p);
  void update_ends(Place p);
  void zero(Place p);
  void accumulate(Place p);
  void add_gradient(Place p, Slot slot, std::int32_t part);
  void grow(Place p, Slot slot, const Sum& more);

  // what must be there
  void need_weights(Place p, Slot slot) const;
  void need_ends(Place p, Slot slot) const;
  void need_kept(Place p, Slot slot, Content::Holds holds) const;
  void need_hidden(Place p, Slot slot, Content::Holds holds, std::int32_t shard) const;
  const Sum& need_sum(Place p, Slot slot) const;
  void need_payload(Place p) const;
  void once(Place p, std::int32_t part, std::uint8_t work);

  // collectives
  void reduce_scatter(std::span<const Place> calls);
  void all_gather(std::span<const Place> calls);
  [[nodiscard]] std::shared_ptr<Sum> union_of(std::span<const Place> calls) const;

  const Program& program_;
  std::vector<std::vector<Content>> slots_;                   // per rank, classes one after the other
  std::vector<std::array<std::size_t, slot_classes>> first_;  // of each class
  std::vector<std::uint8_t>
      done_;  // what has been computed: [shards + 1, micro-batches], the last row for the ends
};

}  // namespace minitaw::schedule
