#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.hpp"
#include "folder.hpp"
#include "record/read.hpp"
#include "record/recorder.hpp"
#include "refusal.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class StoredCases : public InFolder {
protected:
  std::string file_;
  void SetUp() override {
    InFolder::SetUp();
    file_ = path("r.h5");
  }

  [[nodiscard]] std::vector<StoredCase> cases(const std::string& file) const {
    const MemoryFile opened = MemoryFile::load(file);
    std::vector<StoredCase> found;
    for (const Row& row : read_summary(opened, file)) found.push_back(read_case(opened, file, row));
    return found;
  }

  /// The file after `change` was done to its first case, as another program might have left it.
  template <class Change>
  std::string changed(const Change& change) {
    const MemoryFile image = MemoryFile::load(file_);
    {
      const h5::Id group = h5::open_group(h5::open_group(image.root(), "cases").get(), "0000");
      change(group.get());
    }
    replace_file(path("changed.h5"), image.bytes());
    return path("changed.h5");
  }

  [[nodiscard]] std::string complaint(const std::string& file) const {
    return refusal_of([&] { (void)cases(file); });
  }
};

void drop(hid_t group, const char* name) {
  h5::check(H5Ldelete(group, name, H5P_DEFAULT), "delete a dataset");
}

TEST_F(StoredCases, are_as_they_were_written) {
  const CaseResult first = sample_case("ddp", 64, 5);
  const CaseResult second = sample_case("tawpipe", 128, 3);
  {
    Recorder recorder(file_, {});
    recorder.append(first);
    recorder.append(second);
  }
  const std::vector<StoredCase> found = cases(file_);
  ASSERT_THAT(found, SizeIs(2));
  for (const auto& [stored, written] : {std::pair(found[0], first), std::pair(found[1], second)}) {
    EXPECT_EQ(stored.row.text("schedule"), written.settings.schedule);
    EXPECT_EQ(stored.seconds, written.seconds);
    EXPECT_EQ(stored.repetition, written.repetition);
    EXPECT_EQ(stored.position, written.position);
    EXPECT_EQ(stored.losses, written.losses);
    EXPECT_EQ(stored.energy, written.energy);
    EXPECT_EQ(stored.counters, written.counters);
    ASSERT_EQ(stored.device_samples.size(), written.device_samples.size());
  }
}

TEST_F(StoredCases, have_their_counters) {
  CaseResult r = sample_case("ddp", 64, 4);
  r.device_samples.clear();
  for (int step = 0; step < 4; ++step) {
    auto& ranks = r.device_samples.emplace_back();
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back({1000.0 + 10 * step + rank, 2000.0 + rank, 40.0 + step, std::nan(""), 1UL << 63});
  }
  Recorder(file_, {}).append(r);
  const StoredCase found = cases(file_).at(0);
  ASSERT_THAT(found.device_samples, SizeIs(4));
  ASSERT_THAT(found.device_samples, Each(SizeIs(3)));
  const DeviceSample& last = found.device_samples[3][2];
  EXPECT_EQ(last.clock_mhz, 1032);
  EXPECT_EQ(last.memory_clock_mhz, 2002);
  EXPECT_EQ(last.temperature_c, 43);
  EXPECT_TRUE(std::isnan(last.power_w));
  EXPECT_EQ(last.throttle, 1UL << 63);
}

TEST_F(StoredCases, that_failed_have_no_samples) {
  CaseResult r;
  r.settings = sample_case().settings;
  r.status = Status::error;
  Recorder(file_, {}).append(r);
  const StoredCase found = cases(file_).at(0);
  EXPECT_THAT(found.seconds, IsEmpty());
  EXPECT_THAT(found.repetition, IsEmpty());
  EXPECT_THAT(found.device_samples, IsEmpty());
  EXPECT_THAT(found.energy, IsEmpty());
}

TEST_F(StoredCases, that_are_damaged_are_refused) {
  Recorder(file_, {}).append(sample_case("ddp", 64, 4));
  for (const char* name : {"seconds", "losses", "repetition", "position", "device", "counters"}) {
    const std::string file = changed([&](hid_t group) { drop(group, name); });
    EXPECT_THAT(complaint(file), testing::AllOf(HasSubstr("is damaged: case 0"), HasSubstr(name)));
  }
  const auto replaced = [&](const char* name, const h5::Values& values, const std::vector<hsize_t>& shape) {
    return complaint(changed([&](hid_t group) {
      drop(group, name);
      h5::write(group, name, values, shape, {"1"});
    }));
  };
  using Reals = std::vector<double>;
  using Integers = std::vector<std::int64_t>;
  EXPECT_THAT(replaced("seconds", Reals(8, 0.5), {4, 2}), HasSubstr("seconds"));
  EXPECT_THAT(replaced("seconds", Reals(12, -0.5), {4, 3}), HasSubstr("no time"));
  EXPECT_THAT(replaced("seconds", Reals(12, std::nan("")), {4, 3}), HasSubstr("no time"));
  EXPECT_THAT(replaced("seconds", Reals(12, 0.5), {12}), HasSubstr("two-dimensional"));
  EXPECT_THAT(replaced("seconds", Integers(12, 1), {4, 3}), HasSubstr("type"));
  EXPECT_THAT(replaced("repetition", Integers{0, 0, 0}, {3}), HasSubstr("differ in length"));
  EXPECT_THAT(replaced("repetition", Integers{0, 0, 0, 77}, {4}), HasSubstr("repetition holds 77"));
  EXPECT_THAT(replaced("repetition", Integers{0, 0, 0, -1}, {4}), HasSubstr("repetition holds -1"));
  EXPECT_THAT(replaced("counters", Reals{1}, {}), HasSubstr("counters"));
}

}  // namespace
}  // namespace minitaw::record
