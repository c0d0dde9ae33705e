#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/api.hpp"

namespace minitaw::comm::test {

/// NCCL on host memory, over MPI. A group is a kernel for each of its communicators; kernels of a
/// communicator and those of a queue are executed in order, and go on whenever somebody asks whether a
/// communicator is ready. That it is ready means that its calls are complete. What NCCL demands is checked on
/// the way and breaks with comm::Error: groups balance, a communicator in use is left alone, all members make
/// the same calls with equal counts in one order, messages match in order with equal sizes, buffers are in
/// place or apart. Ranks that issue in orders that do not fit together wait for each other, which breaks
/// after a while.
class FakeNccl final : public nccl::Api {
public:
  FakeNccl();
  ~FakeNccl() override;

  nccl::UniqueId unique_id() override;
  std::unique_ptr<nccl::Communicator> init(int ranks, const nccl::UniqueId& id, int rank) override;
  void group_start() override;
  void group_end() override;

  /// From now on a communicator is ready when its calls are on their queue, as with NCCL; finish() completes
  /// them, and so does time while others wait. Buffers must live until then.
  void complete_later();
  void finish();

  /// From now on communicators say that they have failed.
  void fail(const std::string& words);

  struct Launch {
    nccl::Call call;
    nccl::Queue queue;
  };
  struct Seen {
    int communicators = 0, closed = 0, aborted = 0, groups = 0;
    int changes_of_queue = 0;      ///< a communicator's calls came to another queue than those before
    std::vector<Launch> launches;  ///< in order
  };
  [[nodiscard]] const Seen& seen() const;

  class State;

private:
  std::shared_ptr<State> state_;
};

}  // namespace minitaw::comm::test
