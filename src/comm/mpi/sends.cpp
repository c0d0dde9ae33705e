// SPDX-License-Identifier: BSD-3-Clause
#include "comm/mpi/sends.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::mpi {
namespace {
/// An attribute of a communicator: the kind of its traffic, and who counts it.
struct Label {
  SentBytes* sent;
  schedule::Traffic traffic;
};

std::atomic<int> steps_under_way = 0;
std::atomic<const char*> uncounted = nullptr;  ///< the last call

int delete_label(MPI_Comm, int, void* label, void*) {
  delete static_cast<Label*>(label);
  return MPI_SUCCESS;
}

int label_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_label, &made, nullptr),
        "MPI_Comm_create_keyval");
    return made;
  }();
  return key;
}

const Label* label_of(MPI_Comm comm) {
  Label* label = nullptr;
  int found = 0;
  MPI_Comm_get_attr(comm, label_key(), static_cast<void*>(&label), &found);
  return found != 0 ? label : nullptr;
}

/// Data has left by a call that is not counted.
int passed(const char* call, int code) {
  if (steps_under_way > 0)
    uncounted = call;
  return code;
}

/// A message has left, if `code` says so.
int sent(const char* call, int code, int count, MPI_Datatype type, int to, MPI_Comm comm) {
  if (code != MPI_SUCCESS || to == MPI_PROC_NULL)
    return code;
  const Label* const label = label_of(comm);
  if (label == nullptr)
    return passed(call, code);
  int width = 0;
  MPI_Type_size(type, &width);
  label->sent->add(to, label->traffic, static_cast<std::uint64_t>(count) * width);
  return code;
}
}  // namespace

void count_sends(MPI_Comm comm, SentBytes& sent, schedule::Traffic traffic) {
  check_mpi(MPI_Comm_set_attr(comm, label_key(), new Label{&sent, traffic}), "MPI_Comm_set_attr");
}

StepSends::StepSends() {
  ++steps_under_way;
}

StepSends::~StepSends() {
  --steps_under_way;
}

std::string take_uncounted() {
  const char* const call = uncounted.exchange(nullptr);
  return call != nullptr ? call : "";
}
}  // namespace minitaw::comm::mpi

// tests/comm/test_calls.py names a call that the program uses to send, and that is missing here.
using Data = const void*;
using Type = MPI_Datatype;
using Comm = MPI_Comm;
using minitaw::comm::mpi::passed, minitaw::comm::mpi::sent;

int MPI_Send(Data data, int n, Type type, int to, int tag, Comm comm) {
  return sent("MPI_Send", PMPI_Send(data, n, type, to, tag, comm), n, type, to, comm);
}

int MPI_Isend(Data data, int n, Type type, int to, int tag, Comm comm, MPI_Request* request) {
  const int code = PMPI_Isend(data, n, type, to, tag, comm, request);
  return sent("MPI_Isend", code, n, type, to, comm);
}

// Collectives have no one receiver: during a step they are errors, whatever their communicator.
int MPI_Bcast(void* data, int n, Type type, int root, Comm comm) {
  return passed("MPI_Bcast", PMPI_Bcast(data, n, type, root, comm));
}

int MPI_Allreduce(Data data, void* sum, int n, Type type, MPI_Op op, Comm comm) {
  return passed("MPI_Allreduce", PMPI_Allreduce(data, sum, n, type, op, comm));
}

int MPI_Iallreduce(Data in, void* sum, int n, Type type, MPI_Op op, Comm comm, MPI_Request* made) {
  return passed("MPI_Iallreduce", PMPI_Iallreduce(in, sum, n, type, op, comm, made));
}

int MPI_Gather(Data data, int n, Type type, void* all, int each, Type its, int root, Comm comm) {
  return passed("MPI_Gather", PMPI_Gather(data, n, type, all, each, its, root, comm));
}

int MPI_Allgather(Data data, int n, Type type, void* all, int each, Type its, Comm comm) {
  return passed("MPI_Allgather", PMPI_Allgather(data, n, type, all, each, its, comm));
}
