// Golden programs: the text of each schedule at a size that can be read line by line. When a rule changes on
// purpose, read the new text before you accept it:  MINITAW_ACCEPT_GOLDEN=1 ctest -R schedule_golden

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "schedule/registry.hpp"
#include "schedule/text.hpp"

namespace minitaw::schedule {
namespace {

struct Golden {
  const char* file;
  const char* spec;
  const char* groups;
  int micro_batches;
  int layers;
  int replicas = 1;
};

class GoldenText : public testing::TestWithParam<Golden> {};

TEST_P(GoldenText, IsWhatTheRulesGenerate) {
  const Golden& g = GetParam();
  const std::string text = to_text(
      build({parse_spec(g.spec), topology::parse_groups(g.groups), g.micro_batches, g.layers, g.replicas}));
  const std::string path = std::string(MINITAW_GOLDEN_DIR "/") + g.file;
  if (std::getenv("MINITAW_ACCEPT_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str());
  EXPECT_EQ(to_text(parse_program(golden.str())), golden.str());
}

INSTANTIATE_TEST_SUITE_P(Schedules, GoldenText,
                         testing::Values(Golden{"serial.txt", "serial", "1", 2, 2},
                                         Golden{"ddp.txt", "ddp", "2+2", 4, 3},
                                         Golden{"tawpipe.txt", "tawpipe", "2+2", 8, 5},
                                         Golden{"tawpipe-unequal.txt", "tawpipe", "1+3", 4, 4},
                                         Golden{"tawpipe-gwps-off.txt", "tawpipe:gwps=off", "2+2", 4, 4},
                                         Golden{"tawpipe-cco-off.txt", "tawpipe:cco=off", "2+2", 4, 4},
                                         Golden{"tawpipe-prefetch-2.txt", "tawpipe:prefetch=2", "2+2", 4, 4},
                                         Golden{"tawpipe-dbs-off.txt", "tawpipe:dbs=off", "1+1+2", 4, 4},
                                         Golden{"tawpipe-rails-2.txt", "tawpipe:rails=2", "2+2", 4, 4},
                                         Golden{"tawpipe-replicas.txt", "tawpipe", "2+2", 4, 2, 2},
                                         Golden{"weipipe.txt", "weipipe", "2+2", 8, 4},
                                         Golden{"weipipe-naive.txt", "weipipe:naive=on", "2+2", 4, 4},
                                         Golden{"fsdp.txt", "fsdp", "2+2", 4, 2},
                                         Golden{"fsdp-hierarchical.txt", "fsdp:hierarchical=on", "2+2", 4, 2},
                                         Golden{"1f1b.txt", "1f1b", "2+2", 6, 4},
                                         Golden{"zb1.txt", "zb1", "2+2", 6, 4},
                                         Golden{"zb2.txt", "zb2", "2+2", 8, 4}));

}  // namespace
}  // namespace minitaw::schedule
