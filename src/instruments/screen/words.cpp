// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include "base/error.hpp"
#include "base/range.hpp"
#include "instruments/screen/screening.hpp"
#include "topology/system.hpp"

namespace minitaw::screen {
namespace {
double first_known(const Measured& m) {
  const auto there = std::ranges::find_if(m.known.values, [](double v) { return !std::isnan(v); });
  return there == m.known.values.end() ? std::numeric_limits<double>::quiet_NaN() : *there;
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

/// Says what people read of one judgement.
class Writer {
public:
  Writer(const Machine& machine,
      const std::vector<Measured>& measured,
      const Judgement& judgement,
      int rounds)
      : machine_(machine),
        measured_(measured),
        judgement_(judgement),
        rounds_(counted(rounds, "round")) {}

  [[nodiscard]] std::string judged() const {
    const bool any = std::ranges::any_of(
        measured_, [](const Measured& m) { return !std::isnan(first_known(m)); });
    return fmt::format("{} of {}, each beside its peers, in {}; {}",
        counted(machine_.nodes.ranks(), "rank"),
        counted(machine_.nodes.count(), "node"),
        rounds_,
        any ? "and beside what the table knows of the hardware"
            : "nothing absolute, because nothing is known of the hardware");
  }

  [[nodiscard]] std::string sure() const {
    return fmt::format("a culprit was worse than its peers by \"named from\" in most rounds; {}{}",
        std::isnan(judgement_.load)
            ? "what other programs did meanwhile is not known"
            : fmt::format(
                  "other programs took at most {} of a rank's cores", percent(judgement_.load)),
        judgement_.doubtful.empty() ? ""
                                    : fmt::format("; {} stood out that this may have slowed down",
                                          counted(std::ssize(judgement_.doubtful), "part")));
  }

  [[nodiscard]] std::string not_seen() const {
    std::vector<std::string> all = {"smaller losses than \"named from\""};
    const auto unknown = names([](const Measured& m, const Smallest&) {
      return !m.quantity.is_load && std::isnan(first_known(m));
    });
    if (!unknown.empty())
      all.emplace_back(
          "whether all parts are slow alike where nothing is known (--expect MACHINE.toml)");
    if (machine_.nodes.count() == 2)
      all.emplace_back("which end makes a link slow, nor a link that is slow both ways, unless its "
                       "rate is known: "
                       "two nodes have no peers");
    if (machine_.nodes.count() == 3 && std::isnan(rate_known()))
      all.emplace_back("the better one of two slow adapters: of three nodes only one pair is "
                       "without the worse one");
    if (!judgement_.loaded.empty())
      all.push_back(
          fmt::format("faults of {} {}, but for gross ones: other programs took the cores",
              judgement_.loaded.size() == 1 ? "rank" : "ranks",
              topology::ranges_text(judgement_.loaded)));
    return fmt::format("{}", fmt::join(all, "; "));
  }

  [[nodiscard]] std::string next() const {
    const std::string quiet = "end the other programs (top shows them), or take nodes that are "
                              "yours alone, and screen again";
    if (judgement_.culprits.empty())
      return judgement_.loaded.empty() ? "nothing, if such losses do not matter; else more "
                                         "--rounds and --seconds, and --expect MACHINE.toml"
                                       : quiet;
    const auto has = [&](Suspect::Kind kind) {
      return std::ranges::any_of(
          judgement_.culprits, [&](const Culprit& c) { return c.who.kind == kind; });
    };
    std::vector<std::string> all;
    if (has(Suspect::some_ranks))
      all.emplace_back(
          "compare clocks, threads and libraries with a machine that reaches what is known");
    if (has(Suspect::some_adapters))
      all.emplace_back("add nodes that are known to be good, beside which the slow end stands out");
    if (std::ranges::any_of(judgement_.culprits, [](const Culprit& c) {
          return c.who.kind != Suspect::some_ranks && c.who.kind != Suspect::some_adapters;
        }))
      all.emplace_back("screen again without the nodes of the culprits, and those beside other "
                       "nodes, before you "
                       "replace anything");
    if (!judgement_.loaded.empty())
      all.push_back(quiet);
    return fmt::format("{}", fmt::join(all, "; "));
  }

  [[nodiscard]] std::string verdict() const {
    const std::string loaded = judgement_.loaded.empty()
                                   ? ""
                                   : fmt::format("other programs took up to {} of the cores of {}",
                                         percent(judgement_.load),
                                         counted(std::ssize(judgement_.loaded), "rank"));
    if (!judgement_.culprits.empty())
      return fmt::format("FOUND: {} in {}{}{}",
          counted(std::ssize(judgement_.culprits), "culprit"),
          rounds_,
          loaded.empty() ? "" : "; ",
          loaded);
    if (!loaded.empty())
      return fmt::format("INCONCLUSIVE: {} in {}", loaded, rounds_);
    const auto known =
        names([](const Measured& m, const Smallest&) { return !std::isnan(first_known(m)); });
    return fmt::format("CLEAN: nothing stands out in {}; {}",
        rounds_,
        known.empty() ? "a machine that is slow all over would look the same"
                      : fmt::format("{} as known", fmt::join(known, ", ")));
  }

private:
  template <class Which>
  [[nodiscard]] std::vector<std::string> names(const Which& which) const {
    std::vector<std::string> all;
    for (std::size_t q = 0; q < measured_.size(); ++q)
      if (which(measured_[q], judgement_.smallest[q]))
        all.push_back(measured_[q].quantity.name);
    return all;
  }

  [[nodiscard]] double rate_known() const {
    for (const Measured& m : measured_)
      if (m.quantity.partner == Partner::node && !m.quantity.is_latency)
        return first_known(m);
    return std::numeric_limits<double>::quiet_NaN();
  }

  const Machine& machine_;
  const std::vector<Measured>& measured_;
  const Judgement& judgement_;
  std::string rounds_;
};
}  // namespace

Words words_of(const Machine& machine,
    const std::vector<Measured>& measured,
    const Judgement& judgement,
    int rounds,
    int wanted) {
  const Writer writer(machine, measured, judgement, rounds);
  Words words{writer.verdict(), writer.judged(), writer.sure(), writer.not_seen(), writer.next()};
  words.code = !judgement.culprits.empty() ? 1 : judgement.loaded.empty() ? 0 : 3;
  if (rounds >= wanted)
    return words;
  words.verdict = fmt::format(
      "INCOMPLETE: {} of {}; the same command with -o goes on", rounds, counted(wanted, "round"));
  words.next = "the same command with -o goes on";
  words.code = 1;
  return words;
}
}  // namespace minitaw::screen
