#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "comm/mpi/memory.hpp"

namespace minitaw::comm::test {

/// Copies as late as it may: when somebody waits. Until then the target holds poison, so that a missing wait,
/// or memory that is used again too early, shows in the data.
class LazyCopier final : public mpi::Copier {
public:
  void load(std::size_t queue, mpi::Piece pinned, mpi::Piece buffer) override {
    start(loads_[queue], pinned, buffer);
  }
  void store(std::size_t queue, mpi::Piece buffer, mpi::Piece pinned) override {
    start(stores_[queue], buffer, pinned);
  }
  void wait_loaded(std::size_t queue) override { run(loads_[queue]); }
  void wait_stored(std::size_t queue) override { run(stores_[queue]); }

private:
  struct Copy {
    mpi::Piece to, from;
  };
  static void start(std::vector<Copy>& copies, mpi::Piece to, mpi::Piece from) {
    std::memset(to.data(), 0xa5, to.size());
    copies.push_back({to, from});
  }
  static void run(std::vector<Copy>& copies) {
    for (const Copy& copy : copies) std::memcpy(copy.to.data(), copy.from.data(), copy.to.size());
    copies.clear();
  }
  std::array<std::vector<Copy>, queues> loads_, stores_;
};

/// Copies in a thread of its own, after a while: what the thread sanitizer wants to see.
class ThreadCopier final : public mpi::Copier {
public:
  ~ThreadCopier() override {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
  }
  void load(std::size_t queue, mpi::Piece pinned, mpi::Piece buffer) override {
    start(queue, pinned, buffer);
  }
  void store(std::size_t queue, mpi::Piece buffer, mpi::Piece pinned) override {
    start(queues + queue, buffer, pinned);
  }
  void wait_loaded(std::size_t queue) override { wait(queue); }
  void wait_stored(std::size_t queue) override { wait(queues + queue); }

private:
  struct Copy {
    std::size_t queue;
    mpi::Piece to, from;
  };
  void start(std::size_t queue, mpi::Piece to, mpi::Piece from) {
    {
      const std::scoped_lock lock(mutex_);
      copies_.push_back({queue, to, from});
      ++open_[queue];
    }
    changed_.notify_all();
  }
  void wait(std::size_t queue) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_[queue] == 0; });
  }
  void loop() {
    std::mt19937 random(7);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || !copies_.empty(); });
      if (copies_.empty()) return;
      const Copy copy = copies_.front();
      copies_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
      std::memcpy(copy.to.data(), copy.from.data(), copy.to.size());
      lock.lock();
      --open_[copy.queue];
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Copy> copies_;
  std::array<int, 2 * queues> open_{};
  bool ending_ = false;
  std::jthread thread_{[this] { loop(); }};
};

}  // namespace minitaw::comm::test
