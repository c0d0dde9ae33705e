// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/keeping.hpp"

namespace minitaw::schedule {
namespace {
Holder holder_of(const Spec& spec, const char* option) {
  const std::string value = spec.value(option);
  return value == "group" ? Holder::group : value == "none" ? Holder::rank : Holder::owner;
}

std::string one_micro_batch(const Request& request) {
  return request.micro_batches_of_rank() == 1 ? "each rank has one micro-batch" : "";
}

/// Why the holder that an option names has nothing to hold for others; empty: it has.
std::string no_other_holder(const Request& request, const char* option) {
  const bool in_group = holder_of(request.spec, option) == Holder::group;
  return in_group ? one_group(request) : one_rank(request);
}

std::string reshards_nothing(const Request& request) {
  return no_other_holder(request, "reshard");
}

std::string fetches_once(const Request& request) {
  if (holder_of(request.spec, "reshard") == Holder::owner || !reshards_nothing(request).empty())
    return "no weights stay with reshard=world";
  return one_micro_batch(request);
}

std::string reduces_at_once(const Request& request) {
  const std::string one = one_micro_batch(request);
  return one.empty() ? no_other_holder(request, "reduce") : one;
}

const std::vector<OptionDoc> keeping_options = {{"reshard",
                                                    {"world", "group", "none"},
                                                    "where weights stay between visits: with their "
                                                    "owners only; one copy in each group (ZeRO++ "
                                                    "hpZ); a copy on every rank",
                                                    reshards_nothing},
    {"fetch",
        {"micro_batch", "step"},
        "how often weights that stay are fetched from their owners",
        fetches_once},
    {"reduce",
        {"world", "group", "none"},
        "where each micro-batch's gradient is summed: at its owner; in its group; on its rank. The "
        "rest is summed once a step",
        reduces_at_once}};
}  // namespace

std::string one_rank(const Request& request) {
  return request.ranks_of_replica() == 1 ? "one rank has all weights" : "";
}

/// Without GWPS, all ranks are one.
std::string one_group(const Request& request) {
  const bool one =
      request.spec.options.contains("gwps") || request.groups_of_replica().count() == 1;
  return one ? "all ranks are one group" : "";
}

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
