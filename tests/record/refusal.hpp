#pragma once

#include <string>

#include "base/error.hpp"

namespace minitaw::record {

/// What the InputError of `call` says; empty if it throws none.
template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace minitaw::record
