#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "base/error.hpp"

namespace minitaw::record {

/// What `read` returns. What HDF5, or a reader, has to complain about is said of the file: InputError
/// "PATH is damaged: ...". An InputError of `read` says enough and passes.
template <class Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const InputError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw InputError(fmt::format("{} is damaged: {}", path, error.what()));
  }
}

}  // namespace minitaw::record
