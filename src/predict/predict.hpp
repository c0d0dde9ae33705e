#pragma once

#include <functional>
#include <vector>

#include "deck/settings.hpp"
#include "engine/account.hpp"
#include "predict/machine.hpp"
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::predict {

/// What went through an adapter in a step.
struct AdapterUse {
  double out = 0, in = 0;  ///< bytes
};

/// A step of a case on a machine.
struct Prediction {
  double seconds = 0;
  double tokens_per_s = 0;  ///< of all ranks
  double mfu = 0;           ///< matrices and causal attention over the peak; 0: the peak is not known
  engine::StepAccount account;
  std::vector<AdapterUse> adapters;
  std::vector<schedule::Footprint> memory;  ///< per rank
  std::size_t actions = 0;
  engine::StepSpans spans;

  [[nodiscard]] std::size_t worst_memory() const;
};

/// Seconds of the actions of a case on a device that they have for themselves; transfers are not asked for.
/// `program` and `machine` must live as long as the result. Throws InputError if the machine file does not
/// say what the precision of the case reaches.
[[nodiscard]] schedule::Costs device_costs(const deck::Case& c, const schedule::Program& program,
                                           const model::Layout& layout, const Machine& machine);

/// Plays one step on the machine. A run's steps begin together, behind a barrier, so all are alike. Throws
/// InputError if the case has more ranks than the machine. `progress`, from 0 to 1, is called now and then.
[[nodiscard]] Prediction predict(const deck::Case& c, const Machine& machine,
                                 const std::function<void(double)>& progress = {});

/// The same for a program and durations of its actions that are given.
[[nodiscard]] Prediction play(const schedule::Program& program, const model::Layout& layout, const Machine& machine,
                              const schedule::Costs& costs, const std::function<void(double)>& progress = {});

}  // namespace minitaw::predict
