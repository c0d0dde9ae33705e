// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

namespace minitaw::topology {
using Ranks = std::vector<int>;  ///< some of a job

/// Ranks split into D groups of consecutive ranks that share fast links (normally a node). Sizes
/// may differ.
class Groups {
public:
  /// Groups of these sizes, in the order of ranks. Throws InputError for an empty list or a size
  /// below 1.
  explicit Groups(std::vector<int> sizes);
  /// D groups of equal size. Throws InputError unless 1 <= count <= ranks and count divides ranks.
  static Groups equal(int ranks, int count);

  int count() const { return std::ssize(sizes_); }

  int ranks() const { return std::ssize(group_of_); }

  int size(int group) const { return sizes_[group]; }

  int first(int group) const { return first_[group]; }

  int group_of(int rank) const { return group_of_[rank]; }

  int local(int rank) const { return rank - first_[group_of_[rank]]; }

  int rank(int group, int local) const { return first_[group] + local; }

  bool together(int a, int b) const { return group_of_[a] == group_of_[b]; }

  const std::vector<int>& sizes() const { return sizes_; }

  Ranks members(int group) const;
  /// The groups of ranks [begin, end), which count from 0 then; of a group that lies there in part,
  /// that part.
  Groups within(int begin, int end) const;
  /// "1+2+3"
  std::string text() const;
  friend bool operator==(const Groups&, const Groups&) = default;

private:
  std::vector<int> sizes_, first_, group_of_;
};

/// Most ranks of a job, so that a text cannot ask for more memory than there is.
inline constexpr int most_ranks = 1 << 16;
/// Sizes "1+2+3"; of `ranks` ranks also equal groups, "2", or "1+2+*", the rest last. Throws
/// InputError with the text.
Groups parse_groups(const std::string& text, int ranks = 0);
}  // namespace minitaw::topology
