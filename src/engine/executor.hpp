// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include "engine/queue.hpp"
#include "engine/watchdog.hpp"

namespace minitaw::engine {
/// Actions that one thread starts in the order of the program, each on its lane's queue and after
/// its waits: those of one lane, or of all lanes that are streams.
class Sequence {
public:
  /// Calls made for each action. It ends when it is over, or when a stream has taken it.
  struct Hooks {
    std::function<void()> before_start = [] {};
    std::function<void()> on_end;
  };

  /// `actions`: indices into RankProgram::actions, each lane complete and in order. `messages`:
  /// most of one direction that are under way. Program, `queues` and `starter` outlive this.
  Sequence(const schedule::RankProgram& program,
      const std::vector<int>& actions,
      const Queues& queues,
      Starter& starter,
      int messages,
      Hooks hooks);

  void begin_step();

  bool done() const { return next_ == units_.size() && under_way_.empty(); }

  /// Advances transfers, ends what is over, and starts the next actions if they may start. Never
  /// blocks; returns whether anything moved.
  bool advance();

private:
  struct Wait {
    const Queue* queue;
    int unit;
  };

  struct Unit {
    const schedule::Action* action;
    Queue* queue;
    int number;               ///< on its queue
    std::vector<Wait> waits;  ///< not those that earlier units of the queue imply
  };

  struct UnderWay {
    const Unit* unit;
    comm::Transport::Started transfer;  ///< nullptr: it was over when it started

    bool done() const { return transfer == nullptr || transfer->done(); }
  };

  bool end_first();
  bool start_next();
  /// Returns whether the next unit may begin while earlier ones are under way.
  bool may_join() const;

  Starter* starter_;
  int messages_;
  Hooks hooks_;
  std::vector<Unit> units_;
  std::size_t next_ = 0;             ///< to be started
  bool reached_ = false;             ///< reach() was called for the next one
  std::vector<UnderWay> under_way_;  ///< in order
};

using MakeQueues = std::function<Queues(const QueueOptions&)>;

struct StepOptions {
  Watchdog* watchdog = nullptr;  ///< the job's; each step is a phase
  comm::WaitPolicy waiting{};    ///< of the communication thread
  MakeQueues make_queues = engine::make_queues;
  /// Chooses no algorithm by its time: with `fill`, two runs have the same bits.
  bool repeatable = false;
  /// Initial value of every byte of the arena; none: memory as it was found.
  std::optional<std::byte> fill{};
};

/// State of a rank's lanes in a step; empty between steps.
struct Standing {
  std::string lanes;  ///< a line for each: its action, and its waits
  /// The first action that stands still without a wait for a lane or for a transfer that has begun:
  /// "has not finished BW s2 m1 h0 a2 x0 g0".
  std::string unexplained;
};

/// Executes a rank's program step after step. The calling thread submits the compute lane and all
/// lanes that are streams, in the order of the program: all ranks launch alike. A communication
/// thread drives the other lanes, whose transfers are under way together. It sleeps between steps.
class Executor {
public:
  /// Program, starter and transport outlive this; `rank` of the job.
  Executor(const schedule::Program& program,
      int rank,
      Starter& starter,
      comm::Transport& transport,
      const StepOptions& options);
  Executor& operator=(Executor&&) = delete;
  ~Executor();

  /// One step: its seconds on this rank. Throws what a lane throws.
  double step();

  /// Times of every action of the last step, indexed as RankProgram::actions.
  const std::vector<Span>& spans() const { return spans_; }

  /// Time when the last step began, by host_seconds().
  double started() const { return clock_.started(); }

  /// Thread-safe.
  Standing standing() const;

private:
  enum class Turn : int { calling, communication, end };

  Queues make_queues(const MakeQueues& make);
  Sequence own_lanes(Starter& starter);
  std::vector<Sequence> other_lanes(Starter& starter);
  void begin_step();
  double end_step();
  void communicate();
  void order(Turn turn);
  void wait_for_communication() const;
  void wait_for_streams();
  template <class Wait>
  void drive(std::span<Sequence> lanes, const Wait& wait);
  void fail(std::exception_ptr reason);
  void tell_calling_thread();
  long moves();

  const schedule::Program& whole_program_;
  int rank_;
  const schedule::RankProgram& program_;
  comm::Transport& transport_;
  StepOptions options_;
  StepClock clock_;
  std::array<std::vector<int>, schedule::lanes> actions_;  ///< of each lane
  Queues queues_;
  std::vector<Span> spans_;
  /// On while this rank only waits for transfers, so that its cores may spin.
  comm::LowLatency low_latency_;
  Sequence own_;                  ///< the calling thread's
  std::vector<Sequence> others_;  ///< the communication thread's, one for each of its lanes
  std::atomic<int> told_ = 0;     ///< times that the calling thread was woken
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;  ///< the first one
  std::atomic<bool> in_step_ = false;
  std::atomic<Turn> turn_ = Turn::calling;
  std::jthread communication_;
};
}  // namespace minitaw::engine
