#pragma once

#include <string>
#include <vector>

namespace minitaw::record {

/// The host names of a job, so that texts can be kept without them: each becomes "node 0", "node 1", ... A
/// full name counts as well as its part before the first dot; names of fewer than four letters only where
/// they stand alone, because they occur in words. Capital letters make no difference.
class HostNames {
public:
  /// No names: every text passes.
  HostNames() = default;
  /// Of each node. With `shown` the user wants to see them (run --hosts), and every text passes.
  explicit HostNames(std::vector<std::string> of_node, bool shown = false);

  /// Whether texts with names may be kept.
  [[nodiscard]] bool shown() const { return shown_; }
  /// The name of a node, or "node 3".
  [[nodiscard]] std::string text(int node) const;
  [[nodiscard]] bool occur_in(const std::string& text) const;
  /// The text with "node 3" for each name; as it is where they are shown.
  [[nodiscard]] std::string hidden(const std::string& text) const;

private:
  struct Form {
    std::string name;
    int node;
  };
  std::vector<std::string> names_;
  std::vector<Form> forms_;  ///< longest first
  bool shown_ = false;
};

}  // namespace minitaw::record
