// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include "base/error.hpp"
#include "instruments/screen/screening.hpp"
#include "topology/system.hpp"

namespace minitaw::screen {
namespace {
using Texts = std::vector<std::string>;

std::string joined(const Texts& texts) {
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

bool has_known(const Measured& m) {
  return !std::isnan(m.known.median_value());
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
        rounds_(counted(rounds, "round")) {
    for (const Measured& m : measured)
      if (has_known(m))
        known_.push_back(m.quantity.name);
  }

  std::string judged() const {
    return fmt::format("{} of {}, each beside its peers, in {}; {}",
        counted(machine_.nodes.ranks(), "rank"),
        counted(machine_.nodes.count(), "node"),
        rounds_,
        known_.empty() ? "nothing absolute, because nothing is known of the hardware"
                       : "and beside what the table knows of the hardware");
  }

  std::string sure() const {
    Texts all = {"in most rounds a culprit was worse than its peers by what is \"detectable\""};
    all.push_back(std::isnan(judgement_.load)
                      ? "what other programs did meanwhile is not known"
                      : fmt::format("other programs took at most {} of a rank's cores",
                            percent(judgement_.load)));
    if (!judgement_.doubtful.empty())
      all.push_back(fmt::format("{} stood out that this may have slowed down",
          counted(std::ssize(judgement_.doubtful), "part")));
    return joined(all);
  }

  std::string not_seen() const {
    Texts all = {"smaller losses than \"detectable\""};
    if (!std::ranges::all_of(
            measured_, [](const Measured& m) { return m.quantity.is_load() || has_known(m); }))
      all.emplace_back(
          "whether all parts are slow alike where nothing is known (--expect MACHINE.toml)");
    if (machine_.nodes.count() == 2)
      all.emplace_back("which end makes a link slow, nor a link that is slow both ways, unless its "
                       "rate is known: two nodes have no peers");
    const auto is_link_rate = [](const Measured& m) {
      return m.quantity.between_nodes() && !m.quantity.is_latency() && has_known(m);
    };
    if (machine_.nodes.count() == 3 && std::ranges::none_of(measured_, is_link_rate))
      all.emplace_back("the better one of two slow adapters: of three nodes only one pair is "
                       "without the worse one");
    if (!judgement_.loaded.empty())
      all.push_back(
          fmt::format("faults of {} {}, but for gross ones: other programs took the cores",
              judgement_.loaded.size() == 1 ? "rank" : "ranks",
              topology::ranges_text(judgement_.loaded)));
    return joined(all);
  }

  std::string next() const {
    int ranks = 0, adapters = 0;
    for (const Culprit& c : judgement_.culprits) {
      ranks += c.part.kind == Part::some_ranks ? 1 : 0;
      adapters += c.part.kind == Part::some_adapters ? 1 : 0;
    }
    Texts all;
    if (ranks > 0)
      all.emplace_back(
          "compare clocks, threads and libraries with a machine that reaches what is known");
    if (adapters > 0)
      all.emplace_back("add nodes that are known to be good, beside which the slow end stands out");
    if (ranks + adapters < std::ssize(judgement_.culprits))
      all.emplace_back("screen again without the nodes of the culprits, and those beside other "
                       "nodes, before you replace anything");
    if (!judgement_.loaded.empty())
      all.emplace_back("end the other programs (top shows them), or take nodes that are yours "
                       "alone, and screen again");
    if (all.empty())
      all.emplace_back("nothing, if such losses do not matter; else more --rounds and --seconds, "
                       "and --expect MACHINE.toml");
    return joined(all);
  }

  std::string verdict() const {
    Texts found;
    if (!judgement_.culprits.empty())
      found.push_back(
          fmt::format("{} in {}", counted(std::ssize(judgement_.culprits), "culprit"), rounds_));
    if (!judgement_.loaded.empty())
      found.push_back(fmt::format("other programs took up to {} of the cores of {}",
          percent(judgement_.load),
          counted(std::ssize(judgement_.loaded), "rank")));
    if (!judgement_.culprits.empty())
      return "FOUND: " + joined(found);
    if (!found.empty())
      return fmt::format("INCONCLUSIVE: {} in {}", found.front(), rounds_);
    return fmt::format("CLEAN: nothing stands out in {}; {}",
        rounds_,
        known_.empty() ? "a machine that is slow all over would look the same"
                       : fmt::format("{} as known", fmt::join(known_, ", ")));
  }

private:
  const Machine& machine_;
  const std::vector<Measured>& measured_;
  const Judgement& judgement_;
  std::string rounds_;
  Texts known_;  ///< quantities of which something is known
};
}  // namespace

Words words_of(const Machine& machine,
    const std::vector<Measured>& measured,
    const Judgement& judgement,
    int rounds,
    int wanted) {
  const Writer writer(machine, measured, judgement, rounds);
  Words words{.verdict = writer.verdict(),
      .judged = writer.judged(),
      .sure = writer.sure(),
      .not_seen = writer.not_seen(),
      .next = writer.next(),
      .code = !judgement.culprits.empty() ? 1
              : judgement.loaded.empty()  ? 0
                                          : 3};
  if (rounds >= wanted)
    return words;
  words.next = "the same command with -o goes on";
  words.verdict =
      fmt::format("INCOMPLETE: {} of {}; {}", rounds, counted(wanted, "round"), words.next);
  words.code = 1;
  return words;
}
}  // namespace minitaw::screen
