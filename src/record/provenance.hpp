// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include <string_view>
#include "deck/deck.hpp"
#include "record/field.hpp"
#include "topology/placement.hpp"

/// Version of the program that wrote a result. The hash is that of the sources' commit, with
/// "-dirty" if they differ from it, and "unknown" outside a git checkout; the flags are those that
/// change code.
namespace minitaw::build {
extern const std::string_view version, git_hash, build_type, compiler, compiler_flags;
}  // namespace minitaw::build

namespace minitaw::record {
/// The host names of a job, so that texts can be kept without them: each becomes "node 0", "node
/// 1", ... A full name counts as well as its part before the first dot, in capitals or not; one of
/// fewer than four letters only alone.
class HostNames {
public:
  /// No names: every text passes.
  HostNames() = default;
  /// The names of hosts, by node. With `shown` (run --hosts) texts pass unchanged.
  explicit HostNames(std::map<int, std::string> of_nodes, bool shown = false);

  bool shown() const { return shown_; }

  /// The name of a node, or "node 3".
  std::string text(int node) const;
  /// The text with "node 3" for each name; as it is where they are shown.
  std::string hidden(const std::string& text) const;

private:
  std::map<int, std::string> names_;
  std::vector<std::pair<std::string, int>>
      forms_;  ///< of names in small letters, and their nodes; longest first
  bool shown_ = false;
};

/// "NAME=value" of each variable that tunes a library or counts what the job has. A value with a
/// path or a host's name (unless names are shown) is "(not kept)".
std::vector<std::string> recorded_environment(const HostNames& hosts);
/// The settings of links that scripts/cluster exports: "nodes=3", "rate=100mbit", "slow=1:30mbit",
/// ...; empty without it.
std::vector<std::string> shaped_links();
/// "# links         = shaped, rate=100mbit ...\n"; nothing where they are not.
std::string links_text(const std::vector<std::string>& links);

/// "# rank 0: node 0, cores 0-1, host, 2 threads" for up to 16 ranks; warns of cores far (NUMA)
/// from their device.
std::string map_text(const std::vector<topology::RankPlace>& ranks, const HostNames& hosts);
/// Datasets of /sessions/NNNN.
const std::vector<Field>& session_fields();
/// Origin of results: these datasets by name, texts and lists.
using Provenance = std::map<std::string, Elements>;
Elements text_data(std::string_view text);
Elements list_data(std::vector<std::string> list);
/// "HDF5 1.14.5"
std::string hdf5_text();
/// All but libraries, which the caller adds. Nothing of it names a host, unless names are shown or
/// the user has written them, into the command line or the deck: these are kept as they are.
Provenance collect(const deck::Deck& deck,
    const std::vector<std::string>& arguments,
    const std::vector<topology::RankPlace>& ranks,
    const HostNames& hosts);
/// "minitaw 0.2.0 (3f2a1b0c4d5e-dirty, GNU 14.2.0, Release)"
std::string version_text();
}  // namespace minitaw::record
