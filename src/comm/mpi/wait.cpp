#include "comm/mpi/wait.hpp"

#include <algorithm>
#include <thread>

namespace minitaw::comm::mpi {

Patience patience(int cores, int threads) {
  if (cores >= threads) return {.spins = 20'000, .yields = 100};
  return {.spins = 2, .yields = 4};
}

void Pause::once() {
  if (left_.spins > 0) {
    --left_.spins;
  } else if (left_.yields > 0) {
    --left_.yields;
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, left_.longest_sleep);
  }
}

}  // namespace minitaw::comm::mpi
