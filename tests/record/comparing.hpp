#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "base/error.hpp"
#include "folder.hpp"
#include "record/compare/compare.hpp"
#include "refusal.hpp"
#include "sample.hpp"
#include "seed.hpp"

namespace minitaw::record::compare {

using Change = std::function<void(CaseResult&)>;

/// Steps of about `seconds`, a little different in each, in as many repetitions as wanted.
inline CaseResult measured(double seconds, int repetitions = 1, const std::string& schedule = "tawpipe",
                           int seq = 128) {
  constexpr int steps = 6;
  static std::mt19937 random(test::seed());
  std::uniform_real_distribution<double> noise(0, 0.01);
  CaseResult r = sample_case(schedule, seq, steps * repetitions);
  r.settings.steps = steps;
  r.settings.repeats = repetitions;
  r.position.clear();
  for (int i = 0; i < repetitions; ++i) r.position.push_back(i);
  r.energy.assign(static_cast<std::size_t>(repetitions), {1, 1, 1});
  for (std::size_t i = 0; i < r.seconds.size(); ++i) {
    r.repetition[i] = static_cast<int>(i) / steps;
    for (double& rank : r.seconds[i]) rank = seconds * (1 + noise(random));
  }
  return r;
}

/// As it is read back; that files hold it so is the affair of other tests.
inline StoredCase stored(const CaseResult& r, int number) {
  return {make_row(r, number), r.seconds, r.repetition, r.position, r.losses,
          r.device_samples,    r.energy,  r.counters};
}

class Comparing : public InFolder {
protected:
  std::map<std::string, File> files_;
  Provenance provenance_;

  void SetUp() override {
    InFolder::SetUp();
    provenance_.devices = {"host, 2 threads", "host, 2 threads", "host, 2 threads"};
    provenance_.hosts = {"node 0", "node 0", "node 0"};
    provenance_.nodes = {0, 0, 0};
    provenance_.cpu = {"one", "one", "one"};
    provenance_.build_type = "Release";
  }

  /// The name of what a file with these cases holds.
  std::string file(const std::vector<CaseResult>& cases) {
    File made{fmt::format("{}.h5", files_.size()), {}, {provenance_}};
    for (const CaseResult& c : cases) made.cases.push_back(stored(c, static_cast<int>(made.cases.size())));
    files_.emplace(made.path, made);
    return made.path;
  }

  [[nodiscard]] Comparison compared(const std::vector<std::string>& base,
                                    const std::vector<std::string>& fresh, const Rules& rules = {}) const {
    const auto side = [&](const std::vector<std::string>& names) {
      Side found;
      for (const std::string& name : names) found.push_back(files_.at(name));
      return found;
    };
    return compare(side(base), side(fresh), rules);
  }

  /// Many pairs of files of one case; `change` is done to the new ones.
  Comparison compared_in_turn(int pairs, const Change& change) {
    std::vector<std::string> base, fresh;
    for (int i = 0; i < pairs; ++i) {
      const double drift = 1 + 0.5 * std::abs(std::sin(i));  // both of a pair see the same
      base.push_back(file({measured(drift)}));
      CaseResult other = measured(drift);
      change(other);
      fresh.push_back(file({other}));
    }
    return compared(base, fresh);
  }

  /// Two files of one case, many repetitions each.
  Comparison compared_once(const Change& change, const Rules& rules = {}) {
    CaseResult other = measured(1, 6);
    change(other);
    return compared({file({measured(1, 6)})}, {file({other})}, rules);
  }
};

}  // namespace minitaw::record::compare
