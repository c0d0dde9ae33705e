#include "engine/agree.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;

/// Kokkos and CUDA say it in words.
bool speaks_of_memory(std::string_view message) {
  return message.find("failed to allocate") != message.npos || message.find("out of memory") != message.npos;
}

/// Why `work` has failed: 'i' for an InputError, 'm' for memory, 'o' for all else, then in words; empty if it
/// has not.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const InputError& e) {
    return std::string("i") + e.what();
  } catch (const std::bad_alloc&) {
    return "mout of memory";
  } catch (const std::exception& e) {
    return (speaks_of_memory(e.what()) ? "m" : "o") + std::string(e.what());
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
  const std::string mine = failure_of(work);
  wait_for_all(comm);
  const std::vector<std::string> all = comm::mpi::gather_texts(mine, comm);
  const auto first = std::ranges::find_if_not(all, &std::string::empty);
  if (first == all.end()) return;
  const std::string words = first->substr(1);
  if (first->front() == 'i') throw InputError(words);
  if (first->front() == 'm') throw AgreedOutOfMemory(words);
  throw AgreedError(words);
}

}  // namespace minitaw::engine
