#pragma once

#include <functional>

#include "engine/clock.hpp"

namespace minitaw::engine {

/// Where the units of a lane run, in order: a device's stream, or the thread that asks. Units are numbered
/// from 0 within a step. One thread at a time submits; begun(), completed() and is_complete() may be called
/// from any.
class Queue {
public:
  using Work = std::function<void()>;
  /// Asked during long waits; throws to end them.
  using Check = std::function<void()>;

  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  /// Whether run() returns before the work is complete.
  [[nodiscard]] virtual bool asynchronous() const = 0;

  /// Forgets the last step. Nothing of it may still be running.
  virtual void begin_step() = 0;
  /// The lane has come to `unit`; from here on it waits for others.
  virtual void open(int unit) = 0;
  /// What is submitted from now on starts after `unit` of `other`, which must have been submitted there.
  virtual void after(const Queue& other, int unit) = 0;
  /// Submits `unit`.
  virtual void run(int unit, const Work& work) = 0;
  /// Returns when everything submitted is complete.
  virtual void finish(const Check& check) = 0;

  /// Units submitted so far in this step (asynchronous) or begun.
  [[nodiscard]] virtual int begun() const = 0;
  /// Units of this step that are complete.
  [[nodiscard]] virtual int completed() const = 0;
  [[nodiscard]] bool is_complete(int unit) const { return completed() > unit; }
  /// Handle that a queue of the same device can wait for; nullptr if the unit was complete when run()
  /// returned.
  [[nodiscard]] virtual void* event(int) const { return nullptr; }

  /// When `unit` ran, seconds since the step began; valid after finish().
  [[nodiscard]] virtual Span span(int unit) const = 0;
};

}  // namespace minitaw::engine
