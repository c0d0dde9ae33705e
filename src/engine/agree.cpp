#include "engine/agree.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;

enum Outcome : int { fine = 0, input_error = 1, other_error = 2, out_of_memory = 3 };

struct Local {
  Outcome outcome = fine;
  std::string message;
};

/// Kokkos and CUDA say it in words.
bool speaks_of_memory(std::string_view message) {
  return message.find("failed to allocate") != message.npos || message.find("out of memory") != message.npos;
}

Local attempt(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const InputError& e) {
    return {input_error, e.what()};
  } catch (const std::bad_alloc&) {
    return {out_of_memory, "out of memory"};
  } catch (const std::exception& e) {
    return {speaks_of_memory(e.what()) ? out_of_memory : other_error, e.what()};
  }
}

}  // namespace

void wait_for_all(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  int done = 0;
  for (auto pause = std::chrono::microseconds(10);;
       pause = std::min(2 * pause, std::chrono::microseconds(2000))) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    std::this_thread::sleep_for(pause);
  }
}

void agree(MPI_Comm comm, const std::function<void()>& work) {
  const int ranks = comm::mpi::size_of(comm);
  Local local = attempt(work);
  wait_for_all(comm);
  int failing = local.outcome == fine ? ranks : comm::mpi::rank_in(comm);
  check(MPI_Allreduce(MPI_IN_PLACE, &failing, 1, MPI_INT, MPI_MIN, comm), "agreeing on errors");
  if (failing == ranks) return;
  std::array<int, 2> header = {local.outcome, static_cast<int>(local.message.size())};
  check(MPI_Bcast(header.data(), 2, MPI_INT, failing, comm), "sharing an error");
  local.message.resize(header[1]);
  check(MPI_Bcast(local.message.data(), header[1], MPI_CHAR, failing, comm), "sharing an error");
  if (header[0] == input_error) throw InputError(local.message);
  if (header[0] == out_of_memory) throw AgreedOutOfMemory(local.message);
  throw AgreedError(local.message);
}

}  // namespace minitaw::engine
