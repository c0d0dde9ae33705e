#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/transport.hpp"
#include "engine/compute.hpp"
#include "engine/lane.hpp"
#include "engine/transfers.hpp"
#include "engine/watchdog.hpp"

namespace minitaw::engine {

/// How long a step took on one rank, seconds. Where it went is said by account(), of all ranks together.
struct StepTime {
  double total = 0;
};

/// Makes the queues of a rank; tests bring their own.
using MakeQueues = std::function<Queues(const QueueOptions&)>;

struct ExecutorOptions {
  std::chrono::duration<double> stall_limit{
      600};  ///< a step in which nothing moves for this long has stalled
  WatchdogCalls watchdog{};
  comm::mpi::WaitPolicy waiting{.spins = 2, .yields = 4};  ///< of the communication thread
  bool communication_on_stream = false;                    ///< of the transport
  MakeQueues make_queues = engine::make_queues;
};

/// Executes a rank's program step after step. Where all queues are asynchronous, the calling thread submits
/// every lane, in the order of the program, so that all ranks launch alike. Else the compute lane has the
/// calling thread, and all communication lanes together another one.
class Executor {
public:
  Executor(const schedule::Program& program, int rank, Compute& compute, Transfers& transfers,
           const ExecutorOptions& options);

  /// One step. Throws what any lane throws.
  StepTime execute();

  /// Times of every action of the last step, indexed as RankProgram::actions.
  [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }
  /// When it began, by host_seconds().
  [[nodiscard]] double started() const { return clock_.started(); }

private:
  [[nodiscard]] Queues queues(const ExecutorOptions& options);
  void begin_step();
  void submit_in_order();
  void execute_on_threads();
  void finish();
  [[nodiscard]] std::vector<std::unique_ptr<Lane>> make_lanes(Compute& compute, Transfers& transfers);
  [[nodiscard]] std::vector<Lane*> driven();

  const schedule::RankProgram& program_;
  Progress progress_;
  Clock clock_;
  Queues queues_;
  bool asynchronous_;  ///< all of them
  std::vector<Span> spans_;
  std::vector<std::unique_ptr<Lane>> lanes_;  ///< those with units, and that of compute, the first one
  CommunicationThread communication_;
  Watchdog watchdog_;
};

}  // namespace minitaw::engine
