#pragma once

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

/// Model FLOPs of that many steps, all ranks together.
[[nodiscard]] double flops(const deck::Case& c, int steps);

}  // namespace minitaw::engine
