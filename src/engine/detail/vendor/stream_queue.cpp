// SPDX-License-Identifier: BSD-3-Clause
// The lanes where the device's vendor is known: streams. Implements what queue.hpp declares for it.
#include <Kokkos_Core.hpp>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>
#include "base/vendor.hpp"
#include "engine/queue.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {
namespace {
using vendor::check, vendor::Stream;

class Event {
public:
  Event() { MINITAW_CALL(EventCreate, &handle_); }

  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

  Event& operator=(Event&&) = delete;

  ~Event() {
    if (handle_ != nullptr)
      (void)MINITAW_VENDOR(EventDestroy)(handle_);
  }

  void record(Stream stream) const { MINITAW_CALL(EventRecord, handle_, stream); }

  bool is_complete() const {
    const MINITAW_VENDOR(Error_t) code = MINITAW_VENDOR(EventQuery)(handle_);
    if (code == MINITAW_VENDOR(ErrorNotReady))
      return false;
    check(code, "a kernel or copy of this step");
    return true;
  }

  /// Seconds from `start` to this event; both complete. Resolution about half a microsecond.
  double since(const Event& start) const {
    float milliseconds = 0;
    MINITAW_CALL(EventElapsedTime, &milliseconds, start.handle_, handle_);
    return 1e-3 * static_cast<double>(milliseconds);
  }

  MINITAW_VENDOR(Event_t) handle() const { return handle_; }

private:
  MINITAW_VENDOR(Event_t) handle_ = nullptr;
};

/// One stream per lane. Communication goes first: its kernels are short, and others wait for them.
class Streams {
public:
  Streams() {
    int lowest = 0, highest = 0;
    MINITAW_CALL(DeviceGetStreamPriorityRange, &lowest, &highest);
    for (int lane = 0; lane < schedule::lanes; ++lane) {
      const bool compute = static_cast<schedule::Lane>(lane) == schedule::Lane::compute;
      MINITAW_CALL(StreamCreateWithPriority,
          &streams_[lane],
          MINITAW_VENDOR(StreamNonBlocking),
          compute ? lowest : highest);
      spaces_[lane].emplace(streams_[lane]);
    }
    // Kokkos clears locks of each space on the default stream, which these streams do not wait for.
    check(MINITAW_VENDOR(DeviceSynchronize)(), "DeviceSynchronize");
  }

  Streams& operator=(Streams&&) = delete;

  ~Streams() {
    for (int lane = 0; lane < schedule::lanes; ++lane) {
      spaces_[lane].reset();  // before the stream that it wraps
      (void)MINITAW_VENDOR(StreamDestroy)(streams_[lane]);
    }
  }

  Stream stream(schedule::Lane lane) const { return streams_[index_of(lane)]; }

  model::ExecutionSpace space(schedule::Lane lane) const { return *spaces_[index_of(lane)]; }

private:
  std::array<Stream, schedule::lanes> streams_{};
  std::array<std::optional<model::ExecutionSpace>, schedule::lanes> spaces_;
};

/// Returns the streams of this process; made by the first call, destroyed when Kokkos is finalized.
const Streams& streams() {
  static std::unique_ptr<Streams> made;
  if (!made) {
    made = std::make_unique<Streams>();
    Kokkos::push_finalize_hook([] { made.reset(); });
  }
  return *made;
}

/// A lane as a stream: begin() enqueues, waits are events, and nothing blocks the host.
class StreamQueue final : public Queue {
public:
  /// `start` marks the beginning of a step; the queue with `records_start` records it, on its own
  /// stream.
  StreamQueue(Stream stream, int units, std::shared_ptr<const Event> start, bool records_start)
      : stream_(stream),
        start_(std::move(start)),
        records_start_(records_start),
        begins_(units),
        ends_(units) {}

  bool asynchronous() const override { return true; }

  void begin_step() override {
    Queue::begin_step();
    if (records_start_)
      start_->record(stream_);
  }

  bool may_follow(const Queue& other, int unit) override {
    auto* const event = static_cast<MINITAW_VENDOR(Event_t)>(other.event(unit));
    if (event == nullptr)
      return other.is_complete(unit);
    if (other.begun() <= unit)
      return false;  // the event is still that of the last step
    MINITAW_CALL(StreamWaitEvent, stream_, event, 0);
    return true;
  }

  /// A transport with these queues enqueues its transfers, and returns none.
  comm::Transport::Started begin(
      int unit, const schedule::Action& action, Starter& starter) override {
    begins_[unit].record(stream_);
    comm::Transport::Started none = starter.start(action);
    check(MINITAW_VENDOR(PeekAtLastError)(), "a kernel launch");
    ends_[unit].record(stream_);
    begun_.store(unit + 1, std::memory_order_release);
    return none;
  }

  bool is_complete(int unit) const override { return unit < begun() && ends_[unit].is_complete(); }

  void* event(int unit) const override { return ends_[unit].handle(); }

  Span span(int unit) const override {
    const double ready = unit == 0 ? 0 : ends_[unit - 1].since(*start_);
    return {ready, begins_[unit].since(*start_), ends_[unit].since(*start_)};
  }

private:
  Stream stream_;
  std::shared_ptr<const Event> start_;
  bool records_start_;
  std::vector<Event> begins_, ends_;
};
}  // namespace

model::ExecutionSpace lane_space(schedule::Lane lane) {
  return streams().space(lane);
}

void use_device() {
  MINITAW_CALL(SetDevice, Kokkos::device_id());
}

Queues make_queues(const QueueOptions& options) {
  Queues queues;
  const auto start = std::make_shared<const Event>();
  for (int l = 0; l < schedule::lanes; ++l) {
    const auto lane = static_cast<schedule::Lane>(l);
    const bool compute = lane == schedule::Lane::compute;
    if (compute || options.communication_on_stream)
      queues[l] =
          std::make_unique<StreamQueue>(streams().stream(lane), options.units[l], start, compute);
    else
      queues[l] = std::make_unique<FencedQueue>(lane_space(lane), options.units[l], *options.clock);
  }
  return queues;
}
}  // namespace minitaw::engine
