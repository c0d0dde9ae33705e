#include "comm/nccl/launcher.hpp"

#include <thread>

namespace minitaw::comm::nccl {

Group::~Group() {
  if (ended_) return;
  try {
    api_.group_end();
  } catch (const std::exception&) {
    // the error that brought us here says more
  }
}

void Group::end() {
  ended_ = true;
  api_.group_end();
}

void Launcher::wait_ready(Communicator& communicator, std::chrono::steady_clock::time_point limit) {
  waiter_.until([&] {
    bool ready = false;
    use([&] { ready = communicator.ready(); });
    if (!ready && std::chrono::steady_clock::now() > limit)
      throw Error(
          "NCCL was not ready in time: some rank is missing, or the network between ranks does not work "
          "(NCCL_DEBUG=INFO says more)");
    return ready;
  });
}

std::unique_lock<std::mutex> Launcher::lock_in_time() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::unique_lock lock(calls_, std::try_to_lock);
  while (!lock && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    (void)lock.try_lock();
  }
  return lock;
}

}  // namespace minitaw::comm::nccl
