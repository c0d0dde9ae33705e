#pragma once

#include "record/compare/compare.hpp"

namespace minitaw::record::compare {

/// Whether the case ended valid in all files of each side.
[[nodiscard]] Aspect compare_verdicts(const Match& match);
/// `times` are those of the case.
[[nodiscard]] Aspect compare_times(const Times& times, const TimeRule& rule);
/// Medians over runs of a column in bytes; differences below `threshold` and below `floor` bytes do not
/// matter.
[[nodiscard]] Aspect compare_memory(const Match& match, const std::string& name, const std::string& column,
                                    double threshold, double floor);
/// Bytes per step that crossed links, exactly.
[[nodiscard]] Aspect compare_bytes(const Match& match, const std::string& name, const std::string& column);
/// Losses of the first step and of the last one that both have, within what the rounding of the type
/// explains.
[[nodiscard]] std::vector<Aspect> compare_losses(const Match& match);

}  // namespace minitaw::record::compare
