// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <mpi.h>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>
#include "comm/wait.hpp"
#include "schedule/program.hpp"
#include "topology/placement.hpp"

namespace minitaw::comm::mpi {
/// Checks a return code of MPI; a failure throws comm::Error with the name of the call and MPI's
/// message.
inline void check(int code, std::string_view call) {
  if (code == MPI_SUCCESS)
    return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(fmt::format("{}: {}", call, std::string_view(text.data(), length)));
}

inline int rank_in(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

inline int size_of(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// Returns this rank of `world`. Throws LogicError if the program is made for another number of
/// ranks.
int rank_in(MPI_Comm world, const schedule::Program& program);

/// A communicator that is freed with the object; MPI_COMM_NULL is none.
struct OwnComm {
  MPI_Comm comm = MPI_COMM_NULL;
  OwnComm& operator=(OwnComm&&) = delete;

  ~OwnComm() {
    if (comm != MPI_COMM_NULL)
      MPI_Comm_free(&comm);
  }
};

void wait(std::span<MPI_Request> requests, const WaitPolicy& policy);
/// The largest of all ranks of `comm`, on all ranks; a barrier, too. Collective; ranks that wait
/// for those who measure sleep, 0.2 ms at a time.
double largest(double mine, MPI_Comm comm);

/// Returns the value of every rank of `comm` on rank 0; elsewhere values that mean nothing.
/// Collective; throws comm::Error, which says `what`.
template <class T>
std::vector<T> gather(const T& mine, MPI_Comm comm, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  std::vector<T> all(static_cast<std::size_t>(size_of(comm)));
  check(MPI_Gather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, 0, comm), what);
  return all;
}

/// The same on every rank.
template <class T>
std::vector<T> all_gather(const T& mine, MPI_Comm comm, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  std::vector<T> all(static_cast<std::size_t>(size_of(comm)));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm), what);
  return all;
}

/// Returns the lists of all ranks of `comm` on rank 0, one after the other; elsewhere an empty one.
/// Collective; throws comm::Error, which says `what`.
template <class T>
std::vector<T> gather_lists(const std::vector<T>& mine, MPI_Comm comm, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  const int bytes = static_cast<int>(sizeof(T) * mine.size());
  const std::vector<int> sizes = gather(bytes, comm, what);
  std::vector<int> begins(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), 0);
  std::vector<T> all;
  if (rank_in(comm) == 0)
    all.resize((begins.back() + sizes.back()) / sizeof(T));
  check(
      MPI_Gatherv(
          mine.data(), bytes, MPI_BYTE, all.data(), sizes.data(), begins.data(), MPI_BYTE, 0, comm),
      what);
  return all;
}

/// Returns the text of every rank of `comm`, on every rank. Collective; throws comm::Error.
std::vector<std::string> gather_texts(const std::string& mine, MPI_Comm comm);
/// The MPI library in one line: "MPICH 4.2.1, device ch4:ucx".
std::string library_version();
/// Returns name and version from MPI_Get_library_version: its first line and MPICH's device,
/// without its build.
std::string library_line(const std::string& text);

/// MPI from construction to destruction, one object per process, in main. Asks for
/// MPI_THREAD_MULTIPLE, for the communication thread and the watchdog, and for error codes instead
/// of an abort. Throws InputError if this MPI cannot serve threads, or the launcher has started
/// ranks that do not find each other.
///
/// Aborts the job after an exception: others may wait for it. Catch inside its life what all ranks
/// agree on.
class Environment {
public:
  Environment(int& argc, char**& argv);
  Environment& operator=(Environment&&) = delete;
  ~Environment();

  int rank() const { return rank_; }

  int ranks() const { return ranks_; }

private:
  int exceptions_, rank_ = 0, ranks_ = 1;
};

/// Detects nodes (from MPI), cores and hosts. Collective; throws InputError on all if a node's
/// ranks lie apart.
topology::Placement detect_placement(MPI_Comm world);
}  // namespace minitaw::comm::mpi
