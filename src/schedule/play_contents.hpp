#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "schedule/play.hpp"
#include "schedule/play_content.hpp"

namespace minitaw::schedule {

/// Follows the contents of all slots through a play and refuses what computes or moves the wrong thing (a),
/// or loses or repeats a contribution (e).
class Contents : public Listener {
public:
  /// `listed`: sums know their members, so that messages can name what is missing.
  Contents(const Program& program, bool listed);

  void local(Place action) override;
  void message(Place send, Place receive) override;
  void collective(std::span<const Place> calls) override;
  /// At the end every micro-batch is computed and every copy of every weight is up to date.
  void check_end() const;

private:
  using Holds = Content::Holds;

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

  // ranges
  [[nodiscard]] Range whole(SlotClass cls) const;
  /// What a slot of the rank can hold.
  [[nodiscard]] Range extent(int rank, SlotClass cls) const;
  /// What an action moves.
  [[nodiscard]] Range moved(const Action& a) const;
  /// Slice i of `range` for n members; refuses what cannot be divided.
  [[nodiscard]] Range slice(std::span<const Place> calls, std::size_t i) const;
  /// Slice of the ends that an end's tensors lie in, or all.
  [[nodiscard]] Range ends_range(std::int32_t part) const;

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
  void write_ends(Place p, Slot slot, std::int32_t part);
  void grow(Place p, Slot slot, Range range, const Sum& more);
  void hold(Place p, Slot slot, Holds holds, std::int32_t shard);

  // what must be there
  void need_weights(Place p, Slot slot) const;
  void need_ends(Place p, Slot slot, std::int32_t part) const;
  void need_micro_batch(Place p, Slot slot, Holds holds, std::int32_t shard) const;
  void need_gradient(Place p, Slot slot, Range range) const;
  void need_complete(Place p, Slot slot, Range range, const std::vector<std::int32_t>& parts);
  void need_both_ends(Place p, Slot slot) const;
  void need_payload(Place p) const;
  void need_only(Place p, Range range) const;
  void once(Place p, std::int32_t part, std::uint8_t work);

  // transfers
  void receive(const Content& from, Range range, Place to, Slot slot);
  void load(Place p);
  void reduce(std::span<const Place> calls);
  void reduce_scatter(std::span<const Place> calls);
  void all_gather(std::span<const Place> calls);
  [[nodiscard]] Pieces union_of(std::span<const Place> calls, Range range) const;

  const Program& program_;
  bool listed_;
  std::vector<std::vector<Content>> slots_;                   // per rank, classes one after the other
  std::vector<std::array<std::size_t, slot_classes>> first_;  // of each class
  std::vector<std::uint8_t>
      done_;  // what has been computed: [shards + 1, micro-batches], the last row for the ends
  std::vector<std::uint8_t> ends_written_;  // of each rank's ends gradient, in this step: bits of ends_bit()
  std::map<std::vector<std::int32_t>, Sum> complete_;  // whole gradients of parts
};

}  // namespace minitaw::schedule
