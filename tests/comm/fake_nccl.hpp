// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <list>
#include "comm/nccl/api.hpp"

namespace minitaw::comm::test {
/// NCCL on host memory, over MPI. A group is a kernel of one communicator; kernels of a
/// communicator and those of a queue are executed in order, and go on whenever somebody asks
/// whether a communicator is ready. What NCCL demands is checked on the way and breaks with
/// comm::Error: groups balance, a communicator in use is left alone, all members make the same
/// calls with equal counts in one order, messages match in order with equal sizes. Ranks that issue
/// in orders that do not fit together wait for each other, which breaks after a while.
/// Communicators must not outlive it.
class FakeNccl final : public nccl::Api {
public:
  FakeNccl();
  ~FakeNccl() override;

  nccl::UniqueId unique_id() override;
  std::unique_ptr<nccl::Communicator> init(int ranks, const nccl::UniqueId& id, int rank) override;

  void group_start() override { ++depth_; }

  void group_end() override;

  /// Whether a communicator is ready when its calls are on their queue, as with NCCL; finish()
  /// completes them then.
  bool complete_later = false;
  void finish();

  /// If not empty, communicators say that they have failed so.
  std::string failure;

  struct Launch {
    class FakeCommunicator* communicator;
    nccl::Call call;
    nccl::Queue queue;
  };

  int communicators = 0, closed = 0, aborted = 0;
  std::vector<Launch> launches;  ///< in order

private:
  friend class FakeCommunicator;
  struct Kernel;

  /// What can be done without waiting.
  void progress();

  int depth_ = 0;
  std::vector<Launch> group_;  ///< that is open
  std::list<Kernel> kernels_;  ///< in order of issue
};
}  // namespace minitaw::comm::test
