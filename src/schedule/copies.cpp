#include <fmt/format.h>

#include "base/error.hpp"
#include "schedule/draft.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {
namespace {

/// Sizes of the groups' shares of ranks [begin, end).
std::vector<int> sizes_within(const topology::Groups& groups, int begin, int end) {
  std::vector<int> sizes;
  for (int r = begin; r < end; ++r) {
    if (r == begin || !groups.together(r - 1, r)) sizes.push_back(0);
    ++sizes.back();
  }
  return sizes;
}

/// Numbers of what belongs to one copy.
struct Offsets {
  int ranks = 0;
  int micro_batches = 0;
  int communicators = 0;
};

RankProgram moved_by(RankProgram rank, const Offsets& by) {
  for (Action& a : rank.actions) {
    if (a.micro_batch >= 0) a.micro_batch += by.micro_batches;
    if (a.peer >= 0) a.peer += by.ranks;
    if (a.communicator >= 0) a.communicator += by.communicators;
  }
  return rank;
}

/// Communicators of the first copy become those of all: copy after copy, then one for each of its ranks.
std::vector<Communicator> communicators_of_copies(const Program& program, int ranks) {
  std::vector<Communicator> all;
  for (int c = 0; c < program.copies; ++c)
    for (const Communicator& own : program.communicators) {
      all.push_back({fmt::format("copy{}.{}", c, own.name), own.ranks});
      for (int& rank : all.back().ranks) rank += c * ranks;
    }
  for (int r = 0; r < ranks; ++r) {
    all.push_back({fmt::format("copies{}", r), {}});
    for (int c = 0; c < program.copies; ++c) all.back().ranks.push_back(c * ranks + r);
  }
  return all;
}

}  // namespace

topology::Groups groups_of_copy(const topology::Groups& groups, int copies) {
  const int ranks = groups.ranks() / copies;
  const std::vector<int> first = sizes_within(groups, 0, ranks);
  for (int c = 1; c < copies; ++c)
    if (sizes_within(groups, c * ranks, (c + 1) * ranks) != first)
      throw InputError(fmt::format(
          "replicas: the groups {} do not give {} copies of {} ranks with groups alike; choose other groups",
          groups.text(), copies, ranks));
  return topology::Groups(first);
}

void make_copies(Program& program) {
  const int ranks = static_cast<int>(program.ranks.size());
  const int own = static_cast<int>(program.communicators.size());
  program.communicators = communicators_of_copies(program, ranks);
  for (int r = 0; r < ranks; ++r)
    for (Action& a : program.ranks[r].actions)
      if (a.communicator == among_copies) a.communicator = -own * program.copies - r - 2;
  program.ranks.reserve(static_cast<std::size_t>(ranks) * program.copies);
  for (int c = 1; c < program.copies; ++c)
    for (int r = 0; r < ranks; ++r)
      program.ranks.push_back(
          moved_by(program.ranks[r], {c * ranks, c * program.micro_batches / program.copies, c * own}));
  for (RankProgram& rank : program.ranks)
    for (Action& a : rank.actions)
      if (a.communicator <= among_copies) a.communicator = -a.communicator - 2;
}

}  // namespace minitaw::schedule
