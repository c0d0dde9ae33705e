#include <gmock/gmock.h>

#include <functional>

#include "base/error.hpp"
#include "folder.hpp"
#include "raw.hpp"
#include "record/read.hpp"
#include "record/read_case.hpp"
#include "record/recorder.hpp"
#include "record/timeline.hpp"
#include "refusal.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Files that HDF5 finds in order, and their seals too, but that miniTaw does not write.
class Strange : public InFolder {
protected:
  void SetUp() override {
    InFolder::SetUp();
    Recorder recorder(path("r.h5"), {});
    CaseResult drawn = sample_case();
    drawn.timeline = sample_timeline();
    recorder.append(drawn);
  }

  using Change = std::function<void(hid_t root)>;

  [[nodiscard]] std::string changed(const Change& change) const {
    const Image image = Image::load(path("r.h5"));
    change(image.root());
    replace_file(path("bad.h5"), image.bytes());
    return path("bad.h5");
  }

  /// What the summary's readers say of it; they say the same.
  [[nodiscard]] std::string summary_refusal(const Change& change) const {
    const std::string file = changed(change);
    const std::string told = refusal_of([&] { (void)read_rows(file); });
    EXPECT_EQ(refusal_of([&] { Recorder recorder(file, {}); }), told);
    EXPECT_EQ(refusal_of([&] { (void)read_cases(Image::load(file), file); }), told);
    return told;
  }
  [[nodiscard]] std::string case_refusal(const Change& change) const {
    const std::string file = changed(change);
    return refusal_of([&] { (void)read_cases(Image::load(file), file); });
  }
};

void remove(hid_t root, const char* name) { h5::check(H5Ldelete(root, name, H5P_DEFAULT), "delete"); }

/// A dataset of one axis of any length, with no values behind it.
void put_hollow(hid_t root, const char* name, hid_t type, hsize_t length) {
  const hsize_t chunk = 64, most = H5S_UNLIMITED;
  const h5::Id space(H5Screate_simple(1, &length, &most), H5Sclose, "make a shape");
  const h5::Id options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make options");
  h5::check(H5Pset_chunk(options.get(), 1, &chunk), "set the chunk size");
  const h5::Id made(H5Dcreate2(root, name, type, space.get(), H5P_DEFAULT, options.get(), H5P_DEFAULT),
                    H5Dclose, "make a dataset");
}

TEST_F(Strange, nothing_is_refused_that_is_as_it_was) {
  EXPECT_EQ(summary_refusal([](hid_t) {}), "");
  EXPECT_EQ(case_refusal([](hid_t) {}), "");
}

TEST_F(Strange, missing_parts) {
  for (const char* name : {"summary", "summary/median_s", "provenance", "provenance/resumed", "cases"}) {
    const std::string file = changed([&](hid_t root) { remove(root, name); });
    EXPECT_THAT(refusal_of([&] { Recorder recorder(file, {}); }), HasSubstr("is damaged")) << name;
  }
  for (const char* name : {"cases", "cases/0000", "cases/0000/seconds", "cases/0000/device/clock"})
    EXPECT_THAT(case_refusal([&](hid_t root) { remove(root, name); }), HasSubstr("is damaged")) << name;
}

TEST_F(Strange, other_lengths) {
  EXPECT_THAT(summary_refusal([](hid_t root) {
                const hsize_t rows = 7;
                const h5::Id column(H5Dopen2(root, "summary/seq", H5P_DEFAULT), H5Dclose, "open");
                h5::check(H5Dset_extent(column.get(), &rows), "grow");
              }),
              HasSubstr("differ in length"));
  EXPECT_THAT(case_refusal([](hid_t root) {
                remove(root, "cases/0000/repetition");
                h5::write(root, "cases/0000/repetition", std::vector<std::int64_t>{0}, {1}, {"1", "sample"});
              }),
              HasSubstr("is damaged"));
}

TEST_F(Strange, shapes_larger_than_the_file) {
  for (const hsize_t length : {hsize_t{1} << 24, hsize_t{1} << 40, hsize_t{1} << 61})
    EXPECT_THAT(summary_refusal([&](hid_t root) {
                  remove(root, "summary/case");
                  put_hollow(root, "summary/case", H5T_STD_I64LE, length);
                }),
                HasSubstr("larger than its file"));
}

TEST_F(Strange, other_types) {
  EXPECT_THAT(summary_refusal([](hid_t root) {
                remove(root, "summary/case");
                put_hollow(root, "summary/case", H5T_IEEE_F64LE, 1);
              }),
              HasSubstr("unexpected type"));
  EXPECT_THAT(summary_refusal([](hid_t root) {
                remove(root, "summary/reason");
                put_hollow(root, "summary/reason", H5T_C_S1, 1);
              }),
              HasSubstr("unexpected type"));
  EXPECT_THAT(summary_refusal([](hid_t root) {
                remove(root, "summary");
                h5::write(root, "summary", std::vector{std::string("a text")}, {}, {"text"});
              }),
              HasSubstr("is damaged"));
}

TEST_F(Strange, links_to_elsewhere) {
  const auto soft = [](hid_t root) {
    remove(root, "summary");
    h5::check(H5Lcreate_soft("/summary", root, "summary", H5P_DEFAULT, H5P_DEFAULT), "link to itself");
  };
  const auto external = [&](hid_t root) {
    remove(root, "summary");
    h5::check(H5Lcreate_external("r.h5", "/summary", root, "summary", H5P_DEFAULT, H5P_DEFAULT), "link");
  };
  EXPECT_THAT(summary_refusal(soft), HasSubstr("is a link"));
  EXPECT_THAT(summary_refusal(external), HasSubstr("is a link"));
}

TEST_F(Strange, values_in_another_file) {
  const std::string other = write("values", std::string(8, 'x'));
  const auto change = [&](hid_t root) {
    remove(root, "summary/case");
    const hsize_t length = 1;
    const h5::Id space(H5Screate_simple(1, &length, nullptr), H5Sclose, "make a shape");
    const h5::Id options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make options");
    h5::check(H5Pset_external(options.get(), other.c_str(), 0, 8), "name a file");
    const h5::Id made(
        H5Dcreate2(root, "summary/case", H5T_STD_I64LE, space.get(), H5P_DEFAULT, options.get(), H5P_DEFAULT),
        H5Dclose, "make a dataset");
  };
  EXPECT_THAT(summary_refusal(change), HasSubstr("in another file"));
}

TEST_F(Strange, a_group_that_is_its_own_member_in_a_file_without_a_seal) {
  const Image image = Image::load(path("r.h5"));
  set_schema(image, 3);
  h5::check(H5Lcreate_hard(image.root(), "/", image.root(), "cases/again", H5P_DEFAULT, H5P_DEFAULT), "link");
  replace_file(path("bad.h5"), raw_bytes(image));
  EXPECT_THAT(refusal_of([&] { (void)read_rows(path("bad.h5")); }), HasSubstr("without end"));
}

TEST_F(Strange, a_seal_of_another_schema) {
  const Image image = Image::load(path("r.h5"));
  set_schema(image, 3);
  replace_file(path("bad.h5"), sealed(raw_bytes(image), schema_version));
  EXPECT_THAT(refusal_of([&] { (void)read_rows(path("bad.h5")); }), HasSubstr("its content 3"));
}

TEST_F(Strange, timelines) {
  const auto told = [&](const Change& change) {
    const std::string file = changed(change);
    return refusal_of([&] { (void)read_timeline(file, 0); });
  };
  const auto replace = [](hid_t root, const char* name, const auto& values) {
    const std::string path = std::string("cases/0000/timeline/") + name;
    remove(root, path.c_str());
    h5::write(root, path, values, {values.size()}, {"1", "event"});
  };
  EXPECT_EQ(told([](hid_t) {}), "");
  EXPECT_THAT(told([&](hid_t root) { replace(root, "end", std::vector<double>(5, 1e300)); }),
              HasSubstr("time"));
  EXPECT_THAT(told([&](hid_t root) { replace(root, "peer", std::vector<std::int64_t>(5, -1)); }),
              HasSubstr("other side"));
  EXPECT_THAT(told([&](hid_t root) { replace(root, "link", std::vector<std::int64_t>(5, 0x7fffffff)); }),
              HasSubstr("link"));
  const auto of_many = [](hid_t root) {
    const h5::Id summary = h5::open_group(root, "summary");
    h5::put(summary.get(), "groups", 0, std::string("1000000"));
  };
  EXPECT_THAT(told(of_many), HasSubstr("fewer events"));
}

}  // namespace
}  // namespace minitaw::record
