#pragma once

#include <string>
#include <vector>

#include "deck/settings.hpp"
#include "record/host_names.hpp"

namespace minitaw::record {

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
