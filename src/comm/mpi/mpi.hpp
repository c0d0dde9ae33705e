// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <mpi.h>
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
inline void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS)
    return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(fmt::format("{}: {}", call, std::string_view(text.data(), length)));
}

inline int rank_in(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

inline int size_of(MPI_Comm comm) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// Returns this rank of `world`. Throws LogicError if the program is made for another number of
/// ranks.
int rank_in(MPI_Comm world, const schedule::Program& program);

/// A communicator that is freed with the object; MPI_COMM_NULL is none.
struct OwnComm {
  MPI_Comm comm = MPI_COMM_NULL;

  OwnComm() = default;

  OwnComm(OwnComm&& other) noexcept : comm(std::exchange(other.comm, MPI_COMM_NULL)) {}

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

/// Returns the value of every rank of `comm` on rank 0; elsewhere none. Collective; throws
/// comm::Error, which says `what`.
template <class T>
std::vector<T> gather(const T& mine, MPI_Comm comm, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  std::vector<T> all(rank_in(comm) == 0 ? size_of(comm) : 0);
  check_mpi(
      MPI_Gather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, 0, comm), what);
  return all;
}

/// The same on every rank: of ten thousand, so only for small values.
template <class T>
std::vector<T> all_gather(const T& mine, MPI_Comm comm, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  std::vector<T> all(static_cast<std::size_t>(size_of(comm)));
  check_mpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm), what);
  return all;
}

/// Returns the list, or text, of every rank of `comm` on rank 0; elsewhere none. One rank after the
/// other: together they may be more bytes than an int can count. Collective; throws comm::Error,
/// which says `what`.
template <class List>
std::vector<List> gather_lists(const List& mine, MPI_Comm comm, std::string_view what) {
  using Value = typename List::value_type;
  static_assert(std::is_trivially_copyable_v<Value>, "values travel as bytes");
  constexpr int tag = 0;
  if (rank_in(comm) != 0) {
    const int bytes = static_cast<int>(sizeof(Value) * mine.size());
    check_mpi(MPI_Send(mine.data(), bytes, MPI_BYTE, 0, tag, comm), what);
    return {};
  }
  std::vector<List> all = {mine};
  for (int from = 1; from < size_of(comm); ++from) {
    MPI_Status status;
    int bytes = 0;
    check_mpi(MPI_Probe(from, tag, comm, &status), what);
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), what);
    List& list = all.emplace_back(bytes / sizeof(Value), Value());
    check_mpi(MPI_Recv(list.data(), bytes, MPI_BYTE, from, tag, comm, MPI_STATUS_IGNORE), what);
  }
  return all;
}

/// Returns the text of rank `root` of `comm` on every rank. Collective; throws comm::Error.
std::string broadcast(std::string text, MPI_Comm comm, int root = 0);
/// Returns the first rank of `comm` whose text is not empty, and that text, on every rank; an empty
/// one if all are. Collective; throws comm::Error.
std::pair<int, std::string> first_text(const std::string& mine, MPI_Comm comm);
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

/// Detects nodes (from MPI), and the cores and host of this rank. Collective; throws InputError on
/// all if a node's ranks lie apart. `look_at_cores`: returns Placement::core_of, on the first rank
/// of a node; none: each processor is a core.
topology::Placement detect_placement(
    MPI_Comm world, const std::function<std::vector<int>()>& look_at_cores = {});
}  // namespace minitaw::comm::mpi
