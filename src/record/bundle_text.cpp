#include <fmt/format.h>

#include "record/bundle.hpp"
#include "record/official.hpp"
#include "record/verdict.hpp"

namespace minitaw::record {

namespace {

std::string heading(std::size_t number, const Provenance& session) {
  return fmt::format("== session {}, started {}\n", number, session.started);
}

std::string line(std::string_view name, const std::string& value) {
  return value.empty() ? "" : fmt::format("{:<16} {}\n", name, value);
}

/// ", what TEXT", if there is one for the rank.
std::string also(const std::vector<std::string>& texts, std::size_t rank, std::string_view what = "") {
  return rank < texts.size() && !texts[rank].empty() ? fmt::format(", {}{}", what, texts[rank]) : "";
}

std::string ranks_text(const Provenance& p) {
  std::string text;
  for (std::size_t rank = 0; rank < p.hosts.size(); ++rank)
    text += line(fmt::format("rank {}", rank),
                 p.hosts[rank] + also(p.devices, rank) + also(p.cores, rank, "cores "));
  return text;
}

std::string session_text(const Provenance& p) {
  std::string text =
      line("version", p.version) + line("git hash", p.git_hash) + line("build type", p.build_type) +
      line("compiler", p.compiler) + line("compiler flags", p.compiler_flags) + line("Kokkos", p.kokkos) +
      line("MPI", p.mpi) + line("NCCL", p.nccl) + line("CUDA", p.cuda) + line("driver", p.driver);
  for (const std::string& library : p.libraries) text += line("library", library);
  text += line("command", p.command) + line("deck", p.deck_path);
  for (const std::string& override : p.overrides) text += line("--set", override);
  for (const std::string& property : p.links) text += line("shaped link", property);
  text += ranks_text(p);
  for (const std::string& variable : p.environment) text += variable + "\n";
  return text;
}

/// "minitaw 0.1.0 (3f2a1b0c4d5e)", each once.
std::string measured_by(const std::vector<Provenance>& sessions) {
  std::string text;
  for (const Provenance& p : sessions) {
    const std::string one = fmt::format("minitaw {} ({})", p.version, p.git_hash);
    if (text.find(one) == std::string::npos) text += (text.empty() ? "" : ", ") + one;
  }
  return text;
}

constexpr std::string_view contents = R"(
record.h5        the record: every setting, sample and byte (docs/results.md)
summary.txt      its table, as minitaw show prints it
summary.csv      the same with all columns and their units
deck.toml        what was asked for; deck-NNNN.toml: what a later session asked for, where it differs
log.txt          what minitaw run printed
environment.txt  versions, command, ranks, and those environment variables that steer a run
added/           what the sender has added
SHA256SUMS       check sums of all files

Check it:        minitaw bundle --check ARCHIVE.tar.gz
or, unpacked:    sha256sum -c SHA256SUMS && minitaw show record.h5
)";

}  // namespace

std::string environment_text(const std::vector<Provenance>& sessions) {
  std::string text;
  for (std::size_t i = 0; i < sessions.size(); ++i)
    text += (i == 0 ? "" : "\n") + heading(i, sessions[i]) + session_text(sessions[i]);
  return text;
}

std::string readme_text(const std::vector<Row>& rows, const std::vector<Provenance>& sessions) {
  return fmt::format("A result of miniTaw\n\n{}{}cases: {}\nmeasured by: {}\nbundled by: {}\n{}",
                     closing_text(rows), official(rows, sessions).text(), rows.size(), measured_by(sessions),
                     version_text(), contents);
}

std::string log_text(const std::vector<Provenance>& sessions,
                     const std::vector<std::vector<std::string>>& logs) {
  std::string text;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    text += (i == 0 ? "" : "\n") + heading(i, sessions[i]);
    for (const std::string& log_line : logs.at(i)) text += log_line + "\n";
    if (logs[i].empty()) text += "no log in this record\n";
  }
  return text;
}

}  // namespace minitaw::record
