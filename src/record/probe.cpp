#include "record/probe.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "base/error.hpp"

namespace minitaw::record {

namespace {

/// The first byte that the child reports; a sentence follows those that complain.
enum Outcome : char { harmless = 'h', input = 'i', damaged = 'd' };

// The sanitizers' shadow memory counts as memory and is larger than any limit; they make reading slow, too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool shadowed = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool shadowed = true;
#else
constexpr bool shadowed = false;
#endif
#else
constexpr bool shadowed = false;
#endif

/// Reading takes less than a hundredth of this, or of four times as much under a sanitizer.
constexpr std::size_t least_seconds = shadowed ? 20 : 5;
constexpr std::size_t bytes_per_second = (std::size_t{16} << 20) / least_seconds;
constexpr rlim_t least_memory = rlim_t{8} << 30, copies = 8;

template <class Resource>  // a number, or an enumeration of the C library
void limit(Resource resource, rlim_t most) {
  rlimit now{};
  if (::getrlimit(resource, &now) != 0) return;
  now.rlim_cur = std::min(most, now.rlim_cur);
  (void)::setrlimit(resource, &now);
}

/// A death of the child is an answer: it leaves no core, calls nobody's handlers and comes in time.
void become_mortal(std::size_t bytes) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGXCPU, SIGTERM, SIGINT})
    (void)::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  limit(RLIMIT_CORE, 0);
  const rlim_t seconds = least_seconds + bytes / bytes_per_second;
  limit(RLIMIT_CPU, seconds);
  if (!shadowed) limit(RLIMIT_DATA, least_memory + copies * bytes);
  ::alarm(static_cast<unsigned>(100 * seconds));  // whoever waits does not use the processor
}

/// A library that notices its end may want to speak of it; the parent does. Not through the streams: what the
/// parent has printed may still be in them.
void fall_silent() {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) (void)::dup2(nowhere, stream);
}

std::string outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {harmless};
  } catch (const InputError& error) {
    return std::string{input} + error.what();
  } catch (const std::exception& error) {
    return std::string{damaged} + error.what();
  }
}

[[noreturn]] void be_child(int pipe, std::size_t bytes, const std::function<void()>& work) {
  become_mortal(bytes);
  fall_silent();
  const std::string outcome = outcome_of(work);
  const bool told = ::write(pipe, outcome.data(), outcome.size()) == static_cast<ssize_t>(outcome.size());
  ::_exit(told ? 0 : 1);
}

/// All that comes out of a pipe until its other end is closed.
std::string read_all(int pipe) {
  std::string text;
  std::array<char, 512> part{};
  for (;;) {
    const ssize_t count = ::read(pipe, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

void reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void no_child(const std::string& path) {
  throw std::runtime_error(fmt::format("{} cannot be read: no process can be started that checks it ({})",
                                       path, std::strerror(errno)));
}

}  // namespace

void probe(const std::string& path, std::size_t bytes, const std::function<void()>& work) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) no_child(path);
  const pid_t child = ::fork();
  if (child == 0) be_child(ends[1], bytes, work);
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    no_child(path);
  }
  const std::string outcome = read_all(ends[0]);
  ::close(ends[0]);
  reap(child);
  if (outcome.empty()) throw InputError(fmt::format("{} is damaged: HDF5 fails over it", path));
  if (outcome[0] == input) throw InputError(outcome.substr(1));
  if (outcome[0] != harmless) throw InputError(fmt::format("{} is damaged: {}", path, outcome.substr(1)));
}

}  // namespace minitaw::record
