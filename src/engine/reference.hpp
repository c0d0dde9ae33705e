#pragma once

#include <map>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "engine/check.hpp"

namespace minitaw::engine {

/// What some steps of a case come to. As a reference: what the case must reproduce, whatever its schedule.
struct Reference {
  std::string key;                     ///< model, data, seed and steps that it belongs to
  std::vector<double> losses;          ///< of each step
  std::vector<NamedTensor> gradients;  ///< of the first step
  std::vector<NamedTensor> later;      ///< gradients of the last step; empty if that is the first
  /// How far the weights after the last step are from what AdamW in double precision makes of the initial
  /// ones with the gradients that were executed. Unlike a difference from other weights it has nothing of the
  /// noise of the first steps, which are as long as the learning rate whatever the size of the gradient is,
  /// rounding noise or not.
  Difference weights;
};

/// The same case for the `serial` schedule on one rank.
[[nodiscard]] deck::Case serial_case(const deck::Case& c);

/// Executes steps of a session and gathers what they come to on rank 0. Collective.
[[nodiscard]] Reference run_steps(Session& session, const deck::Case& c, int steps, MPI_Comm comm);

/// Executes the serial baseline for some steps on this process.
[[nodiscard]] Reference serial_reference(const deck::Case& c, int steps);

/// The same from the float64 model in src/model/reference, which shares no kernel with the engine.
[[nodiscard]] Reference float64_reference(const deck::Case& c, int steps);

/// How far `a` is from reference `b`; of `b`, the weights do not count.
[[nodiscard]] Check compare(const Reference& a, const Reference& b);

/// Key of the reference that a case needs.
[[nodiscard]] std::string reference_key(const deck::Case& c, int steps);

/// Bytes that rank 0 needs for a reference, in the memory that the model is computed in: on a device its
/// arena alone, on a host what is gathered and compared, too.
struct ReferenceMemory {
  std::uint64_t alone = 0;   ///< while the reference is executed, before the case has any memory
  std::uint64_t beside = 0;  ///< while the case is executed, beside its own
};
/// For the check of a first step, References::add() included.
[[nodiscard]] ReferenceMemory memory_of_check(const deck::Case& c);
/// For Job::verify() of so many steps and both references, `held` of the first kind being kept.
[[nodiscard]] ReferenceMemory memory_of_verify(const deck::Case& c, int steps, int held);

/// First steps of the serial baselines met so far, up to a quarter of a GiB.
class References {
public:
  /// Executes the first step of the serial baseline if it is not there yet.
  void add(const deck::Case& c);
  /// What add() has made; an empty reference on ranks that have none.
  [[nodiscard]] const Reference& find(const deck::Case& c) const;
  /// Bytes held.
  [[nodiscard]] std::uint64_t bytes() const { return values_ * sizeof(float); }
  void forget();

private:
  std::map<std::string, Reference> known_;
  std::size_t values_ = 0;  ///< floats held
};

/// Model FLOPs of that many steps, all ranks together.
[[nodiscard]] double flops(const deck::Case& c, int steps);

}  // namespace minitaw::engine
