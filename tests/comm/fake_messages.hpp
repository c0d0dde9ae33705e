#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace minitaw::comm::test {

/// What members tell each other of a call before it may begin.
struct Header {
  int asked = 0, type = 0, root = 0, padding = 0;
  std::uint64_t count = 0, number = 0;
  friend bool operator==(const Header&, const Header&) = default;
};

inline std::string text(const Header& h) {
  return fmt::format("call {} of kind {} type {} root {} count {}", h.number, h.asked, h.type, h.root,
                     h.count);
}

/// Requests that are withdrawn if nobody waits for them to the end.
class Requests {
public:
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests() {
    static std::deque<std::shared_ptr<std::deque<Header>>> left;  // to MPI, which still sends them
    if (std::ranges::any_of(requests_, [](MPI_Request r) { return r != MPI_REQUEST_NULL; }))
      left.push_back(headers_);
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (receives_[i]) MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
    }
  }
  void send(const Header& header, int peer, int tag, MPI_Comm comm) {
    send(&headers_->emplace_back(header), sizeof(Header), peer, tag, comm);
  }
  void send(const void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm) {
    receives_.push_back(false);
    MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &requests_.emplace_back());
  }
  void receive(void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm) {
    receives_.push_back(true);
    MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &requests_.emplace_back());
  }
  bool test() {
    int done = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }

private:
  std::shared_ptr<std::deque<Header>> headers_ = std::make_shared<std::deque<Header>>();
  std::deque<bool> receives_;
  std::vector<MPI_Request> requests_;
};

/// Receives what nobody has asked for.
inline void drain(MPI_Comm comm) {
  for (;;) {
    int found = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status);
    if (found == 0) return;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::vector<std::byte> data(static_cast<std::size_t>(bytes));
    MPI_Mrecv(data.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  }
}

/// Messages may be left on an aborted communicator, and a new one in its place would receive them: it lives
/// until MPI ends.
inline void free_at_the_end(MPI_Comm comm) {
  static std::vector<MPI_Comm> comms;
  static int key = MPI_KEYVAL_INVALID;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  comms.push_back(comm);
  if (key != MPI_KEYVAL_INVALID) return;
  const auto free_all = [](MPI_Comm, int, void*, void*) {
    for (MPI_Comm& left : comms) {
      drain(left);
      MPI_Comm_free(&left);
    }
    return MPI_SUCCESS;
  };
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_all, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);  // MPI_Finalize deletes it first of all
}

}  // namespace minitaw::comm::test
