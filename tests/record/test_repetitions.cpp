#include <gmock/gmock.h>

#include <cmath>

#include "folder.hpp"
#include "record/read.hpp"
#include "record/recorder.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::SizeIs;

class Repetitions : public InFolder {
protected:
  /// A repetition of the case, with counters or without.
  static CaseResult repetition(const std::string& counters) {
    CaseResult r = sample_case("tawpipe", 128, 4);
    r.settings.repeats = 2;
    r.counters = counters;
    if (counters.starts_with("unavailable")) {
      r.device_samples.clear();
      r.energy.clear();
    }
    return r;
  }

  /// Two of them, joined in the file.
  StoredCase joined(const std::string& first, const std::string& second) {
    const std::string file = path("r.h5");
    std::filesystem::remove(file);
    Recorder recorder(file, {});
    recorder.append(repetition(first), 0);
    recorder.append(repetition(second), 1);
    const MemoryFile written = MemoryFile::load(file);
    return read_case(written, file, read_summary(written, file).at(0));
  }
};

TEST_F(Repetitions, CountersOfAllAreKept) {
  const StoredCase found = joined("made up 1.2", "made up 1.2");
  EXPECT_THAT(found.device_samples, SizeIs(8));
  EXPECT_THAT(found.energy, SizeIs(2));
  EXPECT_EQ(found.counters, "made up 1.2");
  EXPECT_DOUBLE_EQ(found.row.real("energy_per_token"), 1200.0 / (8 * 6 * 128 * 2));
}

TEST_F(Repetitions, CountersOfSomeAreThoseOfNone) {
  for (const auto& [first, second] :
       {std::pair{"made up 1.2", "unavailable: lost"}, {"unavailable: lost", "made up 1.2"}}) {
    const StoredCase found = joined(first, second);
    EXPECT_THAT(found.seconds, SizeIs(8));
    EXPECT_THAT(found.device_samples, SizeIs(0));
    EXPECT_THAT(found.energy, SizeIs(0));
    EXPECT_EQ(found.counters, "unavailable: lost") << first;
    EXPECT_EQ(found.row.text("counters"), "unavailable: lost") << first;
    EXPECT_TRUE(std::isnan(found.row.real("energy_per_token")));
  }
}

}  // namespace
}  // namespace minitaw::record
