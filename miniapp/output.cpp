#include "output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"

namespace minitaw::app {

void put_out(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno != EPIPE) throw InputError(fmt::format("standard output: {}", std::strerror(errno)));
}

}  // namespace minitaw::app
