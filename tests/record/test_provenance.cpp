#include <gmock/gmock.h>

#include <cstdlib>

#include "record/provenance.hpp"

namespace minitaw::record {
namespace {

using testing::Contains;
using testing::Each;
using testing::MatchesRegex;
using testing::Not;

TEST(Provenance, holds_what_can_be_known_without_a_job) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("MINITAW_TEST_SECRET", "x", 1);
  deck::Deck deck;
  deck.path = "d.toml";
  deck.text = "layers = 1\n";
  deck.overrides = {"seq=4K"};
  ::setenv("FI_DOMAIN", "cn7", 1);
  const Provenance p =
      collect(deck, {"minitaw", "run", "my deck.toml", "--set", "data=it's"}, HostNames({"cn7"}));
  EXPECT_EQ(p.command, "minitaw run 'my deck.toml' --set 'data=it'\\''s'");
  EXPECT_THAT(p.environment, Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(p.environment, Each(Not(testing::HasSubstr("MINITAW_TEST_SECRET"))));
  EXPECT_THAT(p.environment, Each(Not(testing::HasSubstr("cn7"))));
  EXPECT_THAT(p.started,
              MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]Z"));
  EXPECT_EQ(p.deck, "layers = 1\n");
  EXPECT_FALSE(p.version.empty());
  EXPECT_FALSE(p.git_hash.empty());
  EXPECT_FALSE(p.compiler.empty());
}

TEST(Provenance, keeps_what_the_user_wrote_as_it_is) {
  deck::Deck deck;
  deck.text = "data = \"/scratch/cn7/x\"\n";
  deck.path = "/home/joe/d.toml";
  const Provenance p =
      collect(deck, {"minitaw", "run", "/home/joe/d.toml", "-o", "cn7.h5"}, HostNames({"cn7"}));
  EXPECT_EQ(p.command, "minitaw run /home/joe/d.toml -o cn7.h5");
  EXPECT_EQ(p.deck, deck.text);
  EXPECT_EQ(p.deck_path, deck.path);
}

}  // namespace
}  // namespace minitaw::record
