#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "output.hpp"
#include "record/bundle.hpp"
#include "record/disk.hpp"
#include "record/official.hpp"
#include "record/recorder.hpp"
#include "record/table.hpp"
#include "record/verdict.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string file, output, check;
  std::vector<std::string> added;
};

bool is_archive_name(const std::string& path) { return path.ends_with(".tar.gz") || path.ends_with(".tgz"); }

/// Where the archive goes: results.h5 -> results.tar.gz in the current folder, unless a name is given.
std::string output_of(const Options& options) {
  const std::string output =
      options.output.empty() ? fs::path(options.file).stem().string() + ".tar.gz" : options.output;
  if (!is_archive_name(output)) throw InputError(fmt::format("-o: \"{}\" must end in .tar.gz", output));
  std::error_code none;
  std::vector<std::string> inputs = options.added;
  inputs.push_back(options.file);
  for (const std::string& input : inputs)
    if (fs::equivalent(input, output, none))
      throw InputError(fmt::format("-o: {} is one of the files that go into the bundle", output));
  return output;
}

void write(const std::string& path, const std::string& archive) {
  try {
    record::replace_file(path, std::as_bytes(std::span(archive)));
  } catch (const std::runtime_error& error) {
    throw InputError(error.what());
  }
}

int make(const Options& options) {
  const std::string output = output_of(options);
  const std::vector<record::Row> rows = record::read_rows(options.file);
  const std::string archive = record::make_bundle(options.file, options.added);
  write(output, archive);
  put_out(fmt::format("{}  {}\n{}", record::sha256(archive), output, record::closing_text(rows)));
  return 0;
}

int check(const std::string& path) {
  const record::Bundle bundle = record::read_bundle(path);
  put_out(record::whole_text(bundle.rows) + record::official(bundle.rows, bundle.sessions).text());
  return record::verdict(bundle.rows).valid() ? 0 : 1;
}

int bundle(const Options& options) {
  if (options.file.empty() == options.check.empty())
    throw InputError("bundle: name a result file, or an archive after --check (minitaw help bundle)");
  return options.check.empty() ? make(options) : check(options.check);
}

}  // namespace

void add_bundle(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "bundle", "pack a result file with all that belongs to it, or check such an archive");
  verb->add_option("FILE", options->file, "result file (.h5)");
  CLI::Option* output =
      verb->add_option("-o,--output", options->output, "archive (.tar.gz); default: named as the file, here");
  CLI::Option* added =
      verb->add_option("--add", options->added,
                       "a file to pack too, below added/: a job script, a description of the machine")
          ->type_name("PATH")
          ->type_size(1)
          ->allow_extra_args(false);
  verb->add_option("--check", options->check,
                   "compare every file of an archive with its check sum, print its table and verdict")
      ->type_name("ARCHIVE.tar.gz")
      ->excludes(output)
      ->excludes(added);
  verb->callback([&invocation, options] { invocation.action = [options] { return bundle(*options); }; });
}

}  // namespace minitaw::app
