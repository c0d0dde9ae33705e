#pragma once

namespace minitaw::comm::mpi {

/// MPI from construction to destruction, one object per process, in main. Asks for MPI_THREAD_MULTIPLE,
/// because each communication lane calls MPI from its own thread, and for error codes instead of an abort.
/// Throws InputError if this MPI cannot serve threads, or if the launcher has started ranks that do not find
/// each other.
///
/// A process that leaves by an exception aborts the job: the others may be waiting for it, and MPI_Finalize
/// would wait for them. Catch inside the object's life what all ranks agree on.
class Environment {
public:
  Environment(int& argc, char**& argv);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }

private:
  int exceptions_;
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace minitaw::comm::mpi
