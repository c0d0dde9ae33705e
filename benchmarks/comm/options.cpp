#include "options.hpp"

#include <limits>

#include "cli/cli11.hpp"
#include "cli/parse.hpp"

namespace minitaw::bench {
namespace {

const CLI::Range whole_sizes(std::int64_t{1}, std::numeric_limits<std::int64_t>::max());
const CLI::Range counts(1, std::numeric_limits<int>::max());

void add_sizes(CLI::App& app, CommOptions& options) {
  auto* const deck = app.add_option("--deck", options.deck, "sizes and groups of the shards of a deck's cases");
  deck->type_name("DECK.toml");
  cli::add_overrides(app, options.overrides)->needs(deck);
  app.add_option("--bytes", options.bytes, "sizes of messages, with commas between")
      ->delimiter(',')
      ->check(whole_sizes)
      ->type_name("N")
      ->capture_default_str()
      ->excludes(deck);
  app.add_option_function<std::string>(
         "--groups", [&options](const std::string& text) { options.groups = topology::parse_groups(text); },
         "groups of the ranks, 2+2 (default: the deck's, or one of all)")
      ->type_name("G");
}

void add_method(CLI::App& app, CommOptions& options) {
  app.add_option("--transport", options.transport, "auto, mpi or nccl")->capture_default_str();
  app.add_option("--threads", options.threads, "compute threads of a rank that its waits reckon with")
      ->check(counts)
      ->capture_default_str();
  app.add_flag("--spin", options.spin, "wait as if every thread had a core, whatever there is");
  app.add_option("--rounds", options.rounds, "measurements of each operation, ours and raw in turn")
      ->check(counts)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the contents")->capture_default_str();
  auto* const verify = app.add_flag("--verify", options.verify, "compare what arrives with what must");
  app.add_option("--spoil", options.spoil, "damage the result of this operation, for --verify to see")->needs(verify);
  app.add_option("--markdown", options.markdown, "write the table there")->type_name("FILE");
  app.add_option("--json", options.json, "write the time of every round there")->type_name("FILE");
}

}  // namespace

CommOptions read_options(int argc, char** argv) {
  CommOptions options;
  CLI::App app("Messages and collectives of miniTaw's transport beside the library's own calls, in turn; start it with mpiexec.",
               "minitaw_comm");
  add_sizes(app, options);
  add_method(app, options);
  options.help = cli::parse(app, argc, argv);
  return options;
}

}  // namespace minitaw::bench
