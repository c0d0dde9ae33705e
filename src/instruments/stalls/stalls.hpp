// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include "comm/mpi/mpi.hpp"
#include "harness/instrument.hpp"
#include "topology/groups.hpp"

namespace minitaw::stalls {
/// How far a rank has come, as it says itself.
struct State {
  std::int64_t cases = -1;  ///< begun and ended; below 0: the rank does not answer
  /// What it does not get on with although it waits for nothing: engine::Standing.
  std::array<char, 256> unexplained{};
  std::array<char, 2048> text{};  ///< what it is at

  bool answers() const { return cases >= 0; }
};

/// Names the ranks whose delay no wait for another one explains: "rank 3 (node 1) does not answer".
/// Empty: there are none.
std::string sentence(std::span<const State> states, const topology::Groups& nodes);

/// Says why a job stands still. A thread of each rank answers when it is asked how far its rank has
/// come, whatever that rank waits for. When a rank's watchdog asks, rank 0 gathers the states of
/// all and prints them behind the sentence; the last rank does so if rank 0 does not answer.
///
/// The same thread passes on to rank 0, at once, that a signal has come to its rank.
class Stalls final : public harness::Instrument {
public:
  struct Signals {
    std::function<int()> caught = [] { return 0; };       ///< on each rank; 0: none
    std::function<void(int rank, int signal)> pass_on{};  ///< on rank 0, of other ranks
  };

  /// Collective over `world`, whose ranks lie on these `nodes`.
  Stalls(MPI_Comm world, const topology::Groups& nodes, Signals signals);

  void between_cases() override;
  void begin_case(const harness::RunningCase& running) override;
  void end_case() override;
  [[nodiscard]] std::optional<std::string> explain_stall(const std::string& report) override;

private:
  enum Tag { question, answer, signal };

  bool gathers(int rank) const { return rank == 0 || rank == nodes_.ranks() - 1; }

  void serve(const std::stop_token& end);
  void receive();
  template <class T = char>
  void send(int to, Tag tag, const T* value = nullptr);
  template <class T>
  T receive(int from, Tag tag);
  State state();
  void reply(int asker);
  void conclude();
  void tell(const std::string& sentence);

  comm::mpi::OwnComm own_;
  topology::Groups nodes_;
  int rank_;
  Signals signals_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  const engine::Runtime* runtime_ = nullptr;  ///< of the case that is executed
  std::int64_t cases_ = 0;
  std::string report_;  ///< of this rank's watchdog
  bool asks_ = false, told_ = false;
  std::string sentence_;
  // Of the thread alone:
  int signal_ = 0;              ///< that was passed on
  comm::SentBytes sent_bytes_;  ///< of its messages, which no case has sent
  std::vector<State> states_;   ///< of all ranks; none before they are gathered
  std::chrono::steady_clock::time_point asked_;
  /// Never freed: a message to a rank that is dead does not end.
  std::deque<State> sent_;
  std::jthread thread_;
};
}  // namespace minitaw::stalls
