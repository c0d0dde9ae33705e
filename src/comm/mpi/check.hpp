#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <string_view>

#include "comm/error.hpp"

namespace minitaw::comm::mpi {

/// Every return code of MPI passes through here; a failure throws comm::Error with the call and MPI's own
/// words.
inline void check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace minitaw::comm::mpi
