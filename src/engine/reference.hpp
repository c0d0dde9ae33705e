#pragma once

#include <map>
#include <string>
#include <vector>

#include "deck/settings.hpp"
#include "engine/tensors.hpp"

namespace minitaw::engine {

/// What a case must reproduce, whatever its schedule: computed on one rank.
struct Reference {
  std::string key;                     ///< model, data, seed and steps that it belongs to
  std::vector<double> losses;          ///< of each step
  std::vector<NamedTensor> gradients;  ///< of the first step
  std::vector<NamedTensor> weights;    ///< after the last step
};

/// The same case for the `serial` schedule on one rank.
[[nodiscard]] deck::Case serial_twin(const deck::Case& c);

/// Plays the serial twin for some steps on this process.
[[nodiscard]] Reference serial_reference(const deck::Case& c, int steps);

/// The same from the float64 model in src/model/reference, which shares no kernel with the engine.
[[nodiscard]] Reference float64_reference(const deck::Case& c, int steps);

/// Key of the reference that a case needs.
[[nodiscard]] std::string reference_key(const deck::Case& c, int steps);

/// References met so far, up to a quarter of a GiB.
class References {
public:
  /// Plays the serial twin if its reference is not there yet.
  void add(const deck::Case& c, int steps);
  /// What add() has made; an empty reference on ranks that have none.
  [[nodiscard]] const Reference& find(const deck::Case& c, int steps) const;

private:
  std::map<std::string, Reference> known_;
  std::size_t values_ = 0;  ///< floats held
};

/// Model FLOPs of that many steps, all ranks together.
[[nodiscard]] double flops(const deck::Case& c, int steps);

}  // namespace minitaw::engine
