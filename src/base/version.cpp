#include "base/version.hpp"

#include "minitaw_git_hash.hpp"

namespace minitaw {

std::string_view version() {
  return MINITAW_VERSION;
}

std::string_view git_hash() {
  return MINITAW_GIT_HASH;
}

std::string_view compiler() {
  return MINITAW_COMPILER;
}

std::string_view compiler_flags() {
  return MINITAW_COMPILER_FLAGS;
}

}  // namespace minitaw
