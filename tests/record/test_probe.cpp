#include "record/probe.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

#include "base/error.hpp"
#include "refusal.hpp"

namespace minitaw::record {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string told(const std::function<void()>& work) {
  return refusal_of([&] { probe("f.h5", 1000, work); });
}

TEST(Probe, keeps_nothing_of_harmless_work) {
  int done = 0;
  EXPECT_EQ(told([&] { ++done; }), "");
  EXPECT_EQ(done, 0);
}

TEST(Probe, hands_on_what_is_wrong) {
  EXPECT_EQ(told([] { throw InputError("f.h5 is too new"); }), "f.h5 is too new");
  EXPECT_EQ(told([] { throw std::runtime_error("no summary"); }), "f.h5 is damaged: no summary");
  EXPECT_THAT(told([] { throw std::bad_alloc(); }), StartsWith("f.h5 is damaged"));
}

TEST(Probe, survives_every_end_of_the_work) {
  const std::string fails = "f.h5 is damaged: HDF5 fails over it";
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGKILL})
    EXPECT_EQ(told([&] { ::raise(signal); }), fails);
  EXPECT_EQ(told([] { ::_exit(0); }), fails) << "a child that ends early has not read everything";
  EXPECT_EQ(told([] {
              for (volatile bool endless = true; endless;) {
              }
            }),
            fails);
}

TEST(Probe, says_nothing_itself) {
  testing::internal::CaptureStderr();
  (void)told([] {
    (void)::write(STDERR_FILENO, "HDF5 complains", 14);
    ::abort();
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Probe, needs_no_news_of_children) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(told([] {}), "");
  EXPECT_THAT(told([] { ::abort(); }), HasSubstr("is damaged"));
  std::signal(SIGCHLD, before);
}

}  // namespace
}  // namespace minitaw::record
