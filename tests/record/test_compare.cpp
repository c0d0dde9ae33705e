#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "comparing.hpp"
#include "older.hpp"
#include "record/recorder.hpp"

namespace minitaw::record::compare {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

void slow_down(CaseResult& r, double factor) {
  for (std::vector<double>& sample : r.seconds) *std::ranges::max_element(sample) *= factor;
}

TEST_F(Comparing, the_same_is_the_same) {
  for (const Comparison& c : {compared_once([](CaseResult&) {}), compared_in_turn(7, [](CaseResult&) {})}) {
    EXPECT_EQ(c.text(), "SAME");
    EXPECT_EQ(c.outcome(), Outcome::same);
    ASSERT_THAT(c.cases, SizeIs(1));
    EXPECT_THAT(c.notes, IsEmpty());
    for (const Aspect& aspect : c.cases[0].aspects) EXPECT_EQ(aspect.outcome, Outcome::same) << aspect.name;
  }
}

TEST_F(Comparing, a_sample_is_the_slowest_rank) {
  const Comparison slower = compared_once([](CaseResult& r) { slow_down(r, 1.2); });
  EXPECT_THAT(slower.text(),
              AllOf(StartsWith("REGRESSION: 1 of 1 case, first case 0 (tawpipe"), HasSubstr("step time")));
  const Aspect& time = slower.cases[0].aspect("time");
  EXPECT_EQ(time.word, "SLOWER");
  EXPECT_NEAR(time.ratio->estimate, 1.2, 0.02);
  EXPECT_NEAR(time.base, 1, 0.02);
  EXPECT_NEAR(time.fresh, 1.2, 0.02);
  const Comparison others = compared_once([](CaseResult& r) {
    for (std::vector<double>& sample : r.seconds) *std::ranges::min_element(sample) *= 0.5;
  });
  EXPECT_EQ(others.text(), "SAME") << "the other ranks do not count";
}

TEST_F(Comparing, in_turn_sees_through_a_drift_that_both_sides_share) {
  EXPECT_EQ(compared_in_turn(7, [](CaseResult& r) { slow_down(r, 1.1); }).cases[0].aspect("time").word,
            "SLOWER");
  const Change faster = [](CaseResult& r) {
    for (std::vector<double>& sample : r.seconds)
      for (double& rank : sample) rank /= 1.1;
  };
  EXPECT_EQ(compared_in_turn(7, faster).text(), "FASTER");
}

TEST_F(Comparing, files_that_are_not_in_pairs_are_repetitions) {
  std::vector<std::string> base, fresh;
  for (int i = 0; i < 5; ++i) base.push_back(file({measured(1)}));
  for (int i = 0; i < 4; ++i) fresh.push_back(file({measured(1.3)}));
  const Comparison c = compared(base, fresh);
  EXPECT_EQ(c.cases[0].times.unit, Unit::repetition);
  EXPECT_EQ(c.cases[0].aspect("time").word, "SLOWER");
}

TEST_F(Comparing, too_few_measurements_are_ambiguous) {
  const auto reason = [](const Comparison& c) { return c.cases[0].aspect("time").reason; };
  const Comparison pairs = compared_in_turn(5, [](CaseResult& r) { slow_down(r, 2); });
  EXPECT_EQ(pairs.outcome(), Outcome::ambiguous);
  EXPECT_THAT(reason(pairs), HasSubstr("5 pairs of files, at least 6"));
  const Comparison repetitions = compared({file({measured(1, 3)})}, {file({measured(2, 4)})});
  EXPECT_THAT(reason(repetitions), HasSubstr("3 and 4 repetitions, at least 4 each"));
}

TEST_F(Comparing, one_repetition_comes_with_a_warning) {
  const Comparison c = compared({file({measured(1)})}, {file({measured(1)})});
  EXPECT_EQ(c.text(), "SAME");
  EXPECT_THAT(c.notes, Contains(HasSubstr("one repetition")));
  for (const double other : {0.5, 2.0}) {
    const Comparison differs = compared({file({measured(1)})}, {file({measured(other)})});
    EXPECT_EQ(differs.cases[0].aspect("time").word, "AMBIGUOUS") << "so may two runs of the same program";
    EXPECT_THAT(differs.text(), HasSubstr("one repetition"));
  }
}

TEST_F(Comparing, very_many_samples_are_no_burden) {
  CaseResult many = measured(1);
  for (int i = 0; i < 20000; ++i) {
    many.seconds.push_back(many.seconds[static_cast<std::size_t>(i % 6)]);
    many.repetition.push_back(0);
  }
  const std::string one = file({many});
  const Comparison c = compared({one}, {one});
  EXPECT_LE(c.cases[0].times.base.size(), 1000U);
  EXPECT_NEAR(c.cases[0].aspect("time").ratio->estimate, 1, 0.005);
}

TEST_F(Comparing, the_threshold_decides) {
  Rules wide;
  wide.time.threshold = 0.3;
  EXPECT_EQ(compared_once([](CaseResult& r) { slow_down(r, 1.2); }, wide).text(), "SAME");
  const TimeRule rule;
  const auto word = [&](double low, double high) {
    return judge(Interval{low, (low + high) / 2, high}, rule).word;
  };
  EXPECT_EQ(word(0.96, 1.04), "SAME");
  EXPECT_EQ(word(1.02, 1.049), "SAME") << "certainly different, but not by what matters";
  EXPECT_EQ(word(0.96, 1.06), "AMBIGUOUS");
  EXPECT_EQ(word(1.04, 1.2), "AMBIGUOUS");
  EXPECT_EQ(word(1.051, 1.2), "SLOWER");
  EXPECT_EQ(word(0.8, 0.951), "FASTER");
  EXPECT_EQ(word(0.8, 0.953), "AMBIGUOUS");
  EXPECT_EQ(word(0.5, 2), "AMBIGUOUS");
}

TEST_F(Comparing, a_block_stands_for_itself_by_its_fastest_sample) {
  const Comparison c = compared_once([](CaseResult& r) {
    for (std::size_t i = 0; i < r.seconds.size(); ++i)
      if (i % 6 != 0)
        for (double& rank : r.seconds[i]) rank *= 3;
  });
  EXPECT_EQ(c.text(), "SAME");
  Rules median;
  median.time.quantile = 0.5;
  const Comparison slower = compared_once(
      [](CaseResult& r) {
        for (std::size_t i = 0; i < r.seconds.size(); ++i)
          if (i % 6 != 0)
            for (double& rank : r.seconds[i]) rank *= 3;
      },
      median);
  EXPECT_EQ(slower.cases[0].aspect("time").word, "SLOWER");
}

TEST_F(Comparing, more_steps_are_no_advantage) {
  CaseResult many = measured(1, 6);
  const CaseResult few = many;
  for (int repetition = 0; repetition < 6; ++repetition)
    for (int i = 0; i < 6; ++i) {
      many.seconds.push_back({0.5, 0.5, 0.5});
      many.repetition.push_back(repetition);
      many.device_samples.push_back(many.device_samples.front());
    }
  many.settings.steps = 12;
  const Comparison c = compared({file({few})}, {file({many})});
  EXPECT_EQ(c.cases[0].aspect("time").word, "SAME") << "the first six of each repetition count";
  EXPECT_THAT(c.notes, Contains(HasSubstr("steps = 6 -> 12")));
}

TEST_F(Comparing, cases_are_matched_by_their_settings) {
  const auto a = measured(1, 4, "tawpipe", 128), b = measured(2, 4, "ddp", 128),
             c = measured(3, 4, "ddp", 256);
  const Comparison found = compared({file({a, b})}, {file({c, measured(2, 4, "ddp", 128)})});
  ASSERT_THAT(found.cases, SizeIs(1));
  EXPECT_EQ(found.cases[0].row.text("schedule"), "ddp");
  EXPECT_EQ(found.cases[0].aspect("time").word, "SAME");
  EXPECT_THAT(found.only_base, ElementsAre(HasSubstr("tawpipe")));
  EXPECT_THAT(found.only_fresh, ElementsAre(HasSubstr("256 tokens")));
  EXPECT_THAT(refusal_of([&] { (void)compared({file({a})}, {file({c})}); }),
              AllOf(HasSubstr("no case in common"), HasSubstr("schedule is tawpipe")));
}

TEST_F(Comparing, labels_tell_cases_apart) {
  std::vector<CaseResult> cases = {measured(1, 4), measured(1, 4)};
  cases[1].settings.shape.dtype = model::Dtype::bf16;
  const std::string one = file(cases);
  const Comparison found = compared({one}, {one});
  ASSERT_THAT(found.cases, SizeIs(2));
  EXPECT_THAT(found.cases[0].label, HasSubstr("dtype fp32"));
  EXPECT_THAT(found.cases[1].label, HasSubstr("dtype bf16"));
}

TEST_F(Comparing, what_matters_must_agree_or_be_allowed) {
  const std::vector<std::pair<std::string, Change>> settings = {
      {"dtype", [](CaseResult& r) { r.settings.shape.dtype = model::Dtype::bf16; }},
      {"recompute", [](CaseResult& r) { r.settings.shape.recompute = model::Recompute::none; }},
      {"attention", [](CaseResult& r) { r.attention = "cudnn"; }},
      {"transport", [](CaseResult& r) { r.transport = "nccl"; }},
      {"seed", [](CaseResult& r) { r.settings.seed = 7; }},
      {"learning_rate", [](CaseResult& r) { r.settings.learning_rate = 0.5; }}};
  for (const auto& [name, change] : settings) {
    EXPECT_THAT(refusal_of([&] { (void)compared_once(change); }), HasSubstr("--allow " + name));
    Rules allowing;
    allowing.allowed = {name};
    const Comparison c = compared_once(change, allowing);
    EXPECT_THAT(c.cases[0].differs, ElementsAre(name));
    EXPECT_THAT(c.notes, Contains(HasSubstr("as allowed")));
  }
}

TEST_F(Comparing, the_machine_must_agree_or_be_allowed) {
  const std::string base = file({measured(1, 4)});
  const std::vector<std::pair<std::string, std::function<void()>>> changes = {
      {"threads", [&] { provenance_.devices = {"host, 1 threads", "host, 1 threads", "host, 1 threads"}; }},
      {"device", [&] { provenance_.devices.assign(3, "device 0, NVIDIA H100, 79.1 GiB, GPU-1"); }},
      {"nodes", [&] { provenance_.nodes = {0, 0, 1}; }},
      {"processor", [&] { provenance_.cpu = {"one", "one", "another"}; }},
      {"links", [&] { provenance_.links = {"rate=100mbit"}; }},
      {"build_type", [&] { provenance_.build_type = "Debug"; }}};
  for (const auto& [name, change] : changes) {
    const Provenance before = provenance_;
    change();
    const std::string fresh = file({measured(1, 4)});
    provenance_ = before;
    EXPECT_THAT(refusal_of([&] { (void)compared({base}, {fresh}); }), HasSubstr("--allow " + name));
    Rules allowing;
    allowing.allowed = {name, "threads"};
    EXPECT_EQ(compared({base}, {fresh}, allowing).text(), "SAME");
  }
}

TEST_F(Comparing, which_of_equal_devices_it_was_does_not_matter) {
  const auto devices = [](int first) {
    std::vector<std::string> found;
    for (int i = first; i < first + 3; ++i)
      found.push_back(fmt::format("device {0}, NVIDIA H100, 79.1 GiB, GPU-{0}", i));
    return found;
  };
  provenance_.devices = devices(0);
  const std::string base = file({measured(1, 4)});
  provenance_.devices = devices(3);
  EXPECT_EQ(compared({base}, {file({measured(1, 4)})}).text(), "SAME");
}

TEST_F(Comparing, names_of_what_may_differ_are_checked) {
  EXPECT_THAT(refusal_of([] { require_known({"dtype", "dvice"}); }), HasSubstr("did you mean device"));
  require_known(what_matters());
}

TEST_F(Comparing, bytes_are_compared_exactly) {
  const Comparison more = compared_once([](CaseResult& r) { r.counted_bytes[5] = ++r.planned_bytes[5]; });
  EXPECT_EQ(more.outcome(), Outcome::worse);
  EXPECT_EQ(more.cases[0].worst().word, "MORE");
  EXPECT_THAT(more.cases[0].worst().name, StartsWith("bytes"));
  const Comparison less = compared_once([](CaseResult& r) { r.counted_bytes[5] = --r.planned_bytes[5]; });
  EXPECT_EQ(less.text(), "SAME");
  EXPECT_EQ(less.cases[0].worst().word, "LESS");
}

TEST_F(Comparing, memory_has_a_threshold_of_its_own) {
  const auto grown = [](double share) {
    return [share](CaseResult& r) {
      for (RankMemory& rank : r.memory)
        for (std::uint64_t& kind : rank.measured)
          kind += static_cast<std::uint64_t>(static_cast<double>(kind) * share);
    };
  };
  EXPECT_EQ(compared_once(grown(0.04)).text(), "SAME");
  EXPECT_EQ(compared_once(grown(0.06)).cases[0].aspect("memory").word, "MORE");
  Rules narrow;
  narrow.memory_threshold = 0.01;
  EXPECT_EQ(compared_once(grown(0.04), narrow).outcome(), Outcome::worse);
}

TEST_F(Comparing, the_peak_of_a_process_counts_when_it_grows_by_much) {
  constexpr std::uint64_t mebibyte = 1 << 20;
  const auto base = [](std::uint64_t peak) {
    CaseResult r = measured(1, 4);
    for (RankMemory& rank : r.memory) rank.process_peak = peak;
    return r;
  };
  const auto word = [&](std::uint64_t before, std::uint64_t after) {
    return compared({file({base(before * mebibyte)})}, {file({base(after * mebibyte)})})
        .cases[0]
        .aspect("process peak")
        .word;
  };
  EXPECT_EQ(word(100, 130), "SAME") << "below 32 MiB";
  EXPECT_EQ(word(100, 133), "MORE");
  EXPECT_EQ(word(1000, 1040), "SAME") << "below 5 %";
  EXPECT_EQ(word(1000, 1060), "MORE");
  EXPECT_EQ(word(1060, 1000), "LESS");
}

TEST_F(Comparing, losses_must_agree_within_the_rounding) {
  const auto first = [](double change) {
    return [change](CaseResult& r) { r.losses.front() *= 1 + change; };
  };
  const auto last = [](double change) { return [change](CaseResult& r) { r.losses.back() *= 1 + change; }; };
  EXPECT_EQ(compared_once(first(5e-7)).text(), "SAME");
  EXPECT_EQ(compared_once(first(2e-6)).cases[0].aspect("first loss").word, "WRONG");
  EXPECT_EQ(compared_once(last(5e-5)).text(), "SAME");
  EXPECT_EQ(compared_once(last(-2e-4)).cases[0].aspect("last loss").word, "WRONG");
  EXPECT_EQ(compared_once(first(std::nan(""))).cases[0].aspect("first loss").word, "WRONG");
}

TEST_F(Comparing, a_case_that_is_no_longer_valid_is_a_regression) {
  const Change fail = [](CaseResult& r) {
    r.status = Status::wrong;
    r.reason = "the loss is not finite";
  };
  const Comparison broken = compared_once(fail);
  EXPECT_THAT(broken.text(), AllOf(StartsWith("REGRESSION"), HasSubstr("the loss is not finite")));
  EXPECT_EQ(broken.cases[0].aspect("time").outcome, Outcome::none);
  CaseResult failed = measured(1, 6);
  fail(failed);
  const Comparison repaired = compared({file({failed})}, {file({measured(1, 6)})});
  EXPECT_EQ(repaired.cases[0].aspect("verdict").word, "REPAIRED");
  EXPECT_EQ(repaired.outcome(), Outcome::same);
  const std::string bad = file({failed});
  EXPECT_THAT(refusal_of([&] { (void)compared({bad}, {bad}); }), HasSubstr("valid"));
}

TEST_F(Comparing, a_run_that_failed_takes_its_pair_along) {
  std::vector<std::string> base, fresh;
  for (int i = 0; i < 7; ++i) {
    base.push_back(file({measured(1)}));
    CaseResult r = measured(1);
    if (i == 3) r.status = Status::error;
    fresh.push_back(file({r}));
  }
  const Comparison c = compared(base, fresh);
  EXPECT_THAT(c.cases[0].times.file, ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_EQ(c.cases[0].aspect("time").word, "SAME");
  EXPECT_EQ(c.cases[0].aspect("verdict").word, "BROKEN");
}

TEST_F(Comparing, all_cases_together_have_a_mean) {
  std::vector<std::string> base, fresh;
  for (int i = 0; i < 6; ++i) {
    base.push_back(file({measured(1, 1, "ddp"), measured(2)}));
    fresh.push_back(file({measured(1.1, 1, "ddp"), measured(2.2 * 1.1)}));
  }
  const Comparison c = compared(base, fresh);
  ASSERT_TRUE(c.mean);
  EXPECT_NEAR(c.mean->estimate, 1.1 * std::sqrt(1.1), 0.02);
  EXPECT_LE(c.mean->low, c.mean->estimate);
  EXPECT_GE(c.mean->high, c.mean->estimate);
}

TEST_F(Comparing, what_else_differs_is_noted) {
  const std::string base = file({measured(1, 4)});
  provenance_.git_hash = "abc";
  provenance_.environment = {"OMP_NUM_THREADS=2"};
  const Comparison c = compared({base}, {file({measured(1, 4)})});
  EXPECT_THAT(c.notes, Contains("git_hash = none -> abc"));
  EXPECT_THAT(c.notes, Contains("environment = none -> OMP_NUM_THREADS=2"));
}

TEST_F(Comparing, files_of_older_schemas_can_be_compared) {
  CaseResult plain = measured(1);
  plain.settings.replicas = 1;  // before schema 3 there were no others
  const std::string now = path("now.h5");
  Recorder(now, provenance_).append(plain);
  for (std::int64_t version = 1; version < 4; ++version) {
    make_older(now, path("older.h5"), version);
    const Comparison c = compare(read_side({path("older.h5")}), read_side({now}), {});
    EXPECT_EQ(c.text(), "SAME") << version;
  }
}

TEST_F(Comparing, files_without_results_are_refused) {
  (void)Recorder(path("empty.h5"), provenance_);
  EXPECT_THAT(refusal_of([&] { (void)read_side({path("empty.h5")}); }), HasSubstr("holds no case"));
  EXPECT_THAT(refusal_of([&] { (void)read_side({path("missing.h5")}); }), HasSubstr("missing.h5"));
}

}  // namespace
}  // namespace minitaw::record::compare
