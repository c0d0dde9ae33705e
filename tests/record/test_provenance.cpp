#include <gmock/gmock.h>

#include <cstdlib>

#include "folder.hpp"
#include "record/provenance.hpp"
#include "record/read.hpp"
#include "record/recorder.hpp"
#include "sample.hpp"

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

TEST(Provenance, says_what_links_were_shaped_to_and_nothing_else) {
  ::setenv("MINITAW_SHAPED_LINKS", "rate=100mbit latency=0.2ms /home/joe host=cn7 x=10.0.0.1", 1);
  EXPECT_THAT(shaped_links(), testing::ElementsAre("rate=100mbit", "latency=0.2ms"));
  EXPECT_EQ(links_text(shaped_links()), "# links         = shaped, rate=100mbit latency=0.2ms\n");
  ::unsetenv("MINITAW_SHAPED_LINKS");
  EXPECT_EQ(links_text(shaped_links()), "");
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

class Kept : public InFolder {};

TEST_F(Kept, where_and_on_what_the_ranks_ran) {
  Provenance p;
  p.hosts = {"node 0", "node 1"};
  p.nodes = {0, 1};
  p.cores = {"0-3", "8"};
  p.cpu = {"a processor, 2 sockets", "another"};
  p.os = {"Linux 6", "Linux 7"};
  p.links = {"rate=100mbit", "latency=200us"};
  const std::string file = path("p.h5");
  Recorder(file, p).append(sample_case());
  const MemoryFile written = MemoryFile::load(file);
  const h5::Id found = h5::open_group(written.root(), "provenance");
  for (const auto& [name, list] :
       {std::pair{"hosts", &p.hosts}, {"cores", &p.cores}, {"cpu", &p.cpu}, {"os", &p.os}})
    EXPECT_EQ(h5::read_text_list(found.get(), name), *list) << name;
  EXPECT_THAT(h5::read_integers(found.get(), "nodes"), testing::ElementsAre(0, 1));
  EXPECT_EQ(read_links(written, file).at(0), p.links);
}

}  // namespace
}  // namespace minitaw::record
