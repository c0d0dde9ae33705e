// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/keeping.hpp"

namespace minitaw::schedule {
namespace {
const std::vector<OptionDoc> keeping_options = {{"reshard",
                                                    {"world", "group", "none"},
                                                    "where weights stay between visits: with their "
                                                    "owners only; one copy in each group (ZeRO++ "
                                                    "hpZ); a copy on every rank"},
    {"fetch", {"micro_batch", "step"}, "how often weights that stay are fetched from their owners"},
    {"reduce",
        {"world", "group", "none"},
        "where each micro-batch's gradient is summed: at its owner; in its group; on its rank. The "
        "rest is summed once a step"}};

Holder holder_of(const Spec& spec, const char* option) {
  const std::string value = spec.value(option);
  return value == "group" ? Holder::group : value == "none" ? Holder::rank : Holder::owner;
}
}  // namespace

Keeping keeping_of(const Request& request) {
  Keeping keeping{holder_of(request.spec, "reshard"), request.spec.options.contains("fetch")};
  if (request.micro_batches_of_rank() > 1)  // sums of one micro-batch leave as they are
    keeping.sums = holder_of(request.spec, "reduce");
  return keeping;
}

std::vector<OptionDoc> with_keeping(std::vector<OptionDoc> options) {
  options.insert(options.end(), keeping_options.begin(), keeping_options.end());
  return options;
}
}  // namespace minitaw::schedule
