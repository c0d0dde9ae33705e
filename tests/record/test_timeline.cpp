#include "record/timeline.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "base/error.hpp"
#include "folder.hpp"
#include "record/recorder.hpp"
#include "record/write.hpp"
#include "refusal.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TimelineFile : public InFolder {
protected:
  /// Cases 0 (no timeline), 1 and 2.
  void SetUp() override {
    InFolder::SetUp();
    Recorder recorder(path("r.h5"), {});
    recorder.append(sample_case("ddp"));
    CaseResult drawn = sample_case("tawpipe");
    drawn.timeline = sample_timeline();
    recorder.append(drawn);
    drawn = sample_case("tawpipe:cco=off");
    drawn.timeline = sample_timeline(2);
    recorder.append(drawn);
  }

  /// What reading case 1 says after `damage` has been done to the group of its timeline.
  [[nodiscard]] std::string refusal(const std::function<void(hid_t)>& damage) const {
    const Image image = Image::load(path("r.h5"));
    {
      const h5::Id cases = h5::open_group(image.root(), "cases");
      const h5::Id group = h5::open_group(cases.get(), numbered(1));
      damage(h5::open_group(group.get(), "timeline").get());
    }
    replace_file(path("bad.h5"), image.bytes());
    return refusal_of([&] { (void)read_timeline(path("bad.h5"), 1); });
  }

  template <class T>
  static void replace(hid_t group, const std::string& name, const std::vector<T>& values,
                      const std::vector<std::string>& codes = {}) {
    h5::check(H5Ldelete(group, name.c_str(), H5P_DEFAULT), "delete");
    h5::write(group, name, values, {values.size()}, {"1", "event", {}, codes});
  }
};

TEST_F(TimelineFile, reads_back_what_was_written) {
  EXPECT_THAT(cases_with_timeline(path("r.h5")), ElementsAre(1, 2));
  for (const int number : {1, 2}) {
    const trace::Timeline found = read_timeline(path("r.h5"), number);
    EXPECT_EQ(found.events, sample_timeline(number).events);
    EXPECT_EQ(found.groups.text(), "1+2");
    EXPECT_TRUE(found.measured);
    EXPECT_THAT(found.title, HasSubstr(number == 1 ? "tawpipe," : "tawpipe:cco=off,"));
  }
}

TEST_F(TimelineFile, that_is_not_there_is_said_so) {
  EXPECT_THROW((void)read_timeline(path("r.h5"), 0), InputError);
  EXPECT_THROW((void)read_timeline(path("r.h5"), 3), InputError);
  EXPECT_THROW((void)read_timeline(path("r.h5"), -1), InputError);
  EXPECT_THROW((void)read_timeline(path("none.h5"), 1), InputError);
}

TEST_F(TimelineFile, codes_count_by_their_names) {
  const auto other_order = [](hid_t group) {
    replace<std::int64_t>(group, "lane", {1, 2, 3, 0, 1},
                          {"operands", "compute", "gradients_out", "gradients_in"});
  };
  EXPECT_EQ(refusal(other_order), "");
  EXPECT_EQ(read_timeline(path("bad.h5"), 1).events, sample_timeline().events);
}

TEST_F(TimelineFile, damaged_is_refused) {
  using Whole = std::vector<std::int64_t>;
  EXPECT_EQ(refusal([](hid_t) {}), "");
  EXPECT_THAT(refusal([](hid_t g) { h5::check(H5Ldelete(g, "link", H5P_DEFAULT), "delete"); }),
              HasSubstr("is damaged"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "tick", Whole{1, 2}); }), HasSubstr("tick differs"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "rank", Whole{0, 0, 3, 1, 2}); }), HasSubstr("rank"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "peer", Whole{-2, 0, 3, 1, 2}); }), HasSubstr("peer"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "lane", Whole{0, 0, 0, 0, 9}, {"compute"}); }),
              HasSubstr("unknown lane"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "lane", Whole(5, 0), {"sideways"}); }),
              HasSubstr("unknown lane"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "lane", Whole(5, 0)); }), HasSubstr("is damaged"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "end", std::vector<double>(5, std::nan(""))); }),
              HasSubstr("end is not a time"));
  EXPECT_THAT(refusal([](hid_t g) { replace(g, "begin", std::vector<double>(5, 9.0)); }),
              HasSubstr("ends before"));
}

}  // namespace
}  // namespace minitaw::record
