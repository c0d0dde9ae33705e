#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deck/deck.hpp"

/// What a record keeps of the environment: variables that steer the run, and nothing that says who ran it,
/// where on disk, or on which hosts.
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

/// Whether the variable is on the list: by its full name, or by a prefix whose variables all tune a library;
/// and never one that may hold a secret (..._TOKEN, ..._PASSWORD, ..._SECRET, ..._KEY).
[[nodiscard]] bool may_record(const std::string& name);

/// "NAME=value" as the record keeps it; nothing for a variable that is not on the list. The list cannot know
/// what values hold: in place of a value with a path, a user's name, or (unless names are shown) a host name
/// or network address, it says which of these was left out.
[[nodiscard]] std::optional<std::string> recorded(const std::string& name, const std::string& value,
                                                  const HostNames& hosts);

/// All that is kept of this process's environment, sorted.
[[nodiscard]] std::vector<std::string> recorded_environment(const HostNames& hosts);

/// What scripts/cluster says of the links between its nodes: "nodes=3", "rate=100mbit", ...; empty: they are
/// as they are. Words that are not of this form are left out.
[[nodiscard]] std::vector<std::string> shaped_links();
/// "# links         = shaped, rate=100mbit ...\n"; nothing where they are not.
[[nodiscard]] std::string links_text(const std::vector<std::string>& links);

/// Where a rank of the job runs.
struct RankPlace {
  int node = 0;
  std::string cores;  ///< "0-3,8"
  std::string unit;   ///< what computes: "host, 2 threads", "device 0, NVIDIA H100, 79.6 GiB"
  std::string uuid;   ///< of the device; empty without one
};

/// "# rank 0: node 0, cores 0-1, host, 2 threads", a line for each rank; nodes with their names where these
/// are shown. Of many ranks, equal ones and nodes like the one before share a line, and UUIDs are left to the
/// file.
[[nodiscard]] std::string map_text(const std::vector<RankPlace>& ranks, const HostNames& hosts);

/// Where results come from. Texts that do not apply are empty.
struct Provenance {
  std::string version, git_hash, build_type, compiler, compiler_flags;  ///< of this build
  std::string kokkos, mpi, nccl, cuda, driver;                          ///< versions; filled by the caller
  std::vector<std::string> libraries;    ///< "cublasLt 13.0.2"; filled by the caller
  std::string started;                   ///< ISO 8601, UTC
  std::string command;                   ///< the command line, quoted for a shell
  std::string deck_path, deck;           ///< the deck as read
  std::vector<std::string> overrides;    ///< "key=value" of the command line
  std::vector<std::string> environment;  ///< "NAME=value", allowed names only, sorted
  std::vector<std::string> links;  ///< "rate=100mbit", "latency=200us", ... where scripts/cluster shapes them
  /// Per rank of the job; filled by the caller. Hosts are "node 0", ... unless their names were asked for.
  std::vector<std::string> hosts, devices;
  std::vector<int> nodes;            ///< number of its node
  std::vector<std::string> cores;    ///< that it may run on: "0-3,8"
  std::vector<std::string> cpu, os;  ///< processor and operating system of its node
};

/// All that does not need MPI or a device. Nothing of it names a host, unless names are shown or the user has
/// written them, into the command line or the deck: these are kept as they are.
[[nodiscard]] Provenance collect(const deck::Deck& deck, const std::vector<std::string>& arguments,
                                 const HostNames& hosts);

/// "minitaw 0.1.0 (3f2a1b0c4d5e-dirty, GNU 14.2.0, Release)"
[[nodiscard]] std::string version_text();

}  // namespace minitaw::record
