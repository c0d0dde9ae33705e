// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/links/messages.hpp"
#include <algorithm>
#include <chrono>
#include <thread>

namespace minitaw::links {
using comm::mpi::check, comm::mpi::wait;

double largest(double mine, MPI_Comm comm) {
  constexpr std::chrono::microseconds nap(200);
  double all = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, comm, &request), "MPI_Iallreduce");
  wait({&request, 1}, {.spins = 0, .yields = 0, .shortest_sleep = nap, .longest_sleep = nap});
  return all;
}

int times_in(double seconds, double once, int most) {
  return static_cast<int>(std::clamp<double>(seconds / once, 1, most));
}

double round_trip(int peer, bool first, MPI_Comm comm) {
  constexpr int tag = 2;
  double word = 0;
  const double begin = MPI_Wtime();
  for (const bool sends : {first, !first}) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(sends ? MPI_Isend(&word, 1, MPI_DOUBLE, peer, tag, comm, &request)
                : MPI_Irecv(&word, 1, MPI_DOUBLE, peer, tag, comm, &request),
        "a round trip");
    wait({&request, 1}, busy_wait);
  }
  return MPI_Wtime() - begin;
}

double Exchange::run(std::span<const int> to,
    std::span<const int> from,
    int count,
    std::size_t bytes,
    MPI_Comm comm) {
  constexpr int under_way = 2, tag = 1;
  const auto size = static_cast<int>(bytes);
  sent_.resize(std::max(sent_.size(), bytes));
  received_.resize(std::max(received_.size(), under_way * from.size()));
  for (std::vector<std::byte>& buffer : received_)
    buffer.resize(std::max(buffer.size(), bytes));
  const double begin = MPI_Wtime();
  double arrived = begin;
  for (int message = 0; message < count; message += under_way) {
    std::vector<MPI_Request> in, out;
    for (int i = message; i < std::min(count, message + under_way); ++i) {
      for (const int peer : from) {
        std::byte* const buffer = received_[in.size()].data();
        check(MPI_Irecv(buffer, size, MPI_BYTE, peer, tag, comm, &in.emplace_back()), "MPI_Irecv");
      }
      for (const int peer : to)
        check(MPI_Isend(sent_.data(), size, MPI_BYTE, peer, tag, comm, &out.emplace_back()),
            "MPI_Isend");
    }
    wait(in, busy_wait);
    arrived = MPI_Wtime();
    wait(out, busy_wait);
  }
  return arrived - begin;
}

/// All have slept until the last one is here. Who shares cores then sleeps until an agreed moment
/// on the clock of the machine.
void Stopwatch::begin_together() const {
  using Clock = std::chrono::steady_clock;
  (void)largest(0, comm_);
  if (!share_cores_)
    return check(MPI_Barrier(comm_), "MPI_Barrier");
  constexpr Clock::duration soon = std::chrono::milliseconds(20);
  std::int64_t moment = (Clock::now() + soon).time_since_epoch().count();
  check(MPI_Bcast(&moment, 1, MPI_INT64_T, 0, comm_), "MPI_Bcast");
  std::this_thread::sleep_until(Clock::time_point(Clock::duration(moment)));
}

double Stopwatch::slowest(const std::function<void()>& work) const {
  begin_together();
  const double begin = MPI_Wtime();
  work();
  return largest(MPI_Wtime() - begin, comm_);
}
}  // namespace minitaw::links
