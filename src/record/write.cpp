#include "record/write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "record/table.hpp"

namespace minitaw::record {

namespace {

const h5::Notes text{"text"};

void put_text(hid_t group, const std::string& name, const std::string& value) {
  h5::write(group, name, std::vector{value}, {}, text);
}

void put_list(hid_t group, const std::string& name, const std::vector<std::string>& values,
              const std::string& axes) {
  h5::write(group, name, values, {values.size()}, {"text", axes});
}

void put_cell(hid_t group, const std::string& name, const Cell& cell, const std::string& units) {
  std::visit([&](const auto& value) { h5::write(group, name, std::vector{value}, {}, {units}); }, cell);
}

std::vector<std::string> memory_names() {
  std::vector<std::string> names;
  for (int k = 0; k < schedule::memory_kinds; ++k)
    names.push_back(schedule::name_of(static_cast<schedule::Memory>(k)));
  return names;
}

std::vector<std::string> traffic_names() {
  std::vector<std::string> names;
  for (int k = 0; k < schedule::traffic_kinds; ++k)
    names.push_back(schedule::name_of(static_cast<schedule::Traffic>(k)));
  return names;
}

void write_settings(hid_t parent, const CaseResult& result, int number, int session) {
  const h5::Id group = h5::make_group(parent, "settings");
  const Row row = make_row(result, number, session);
  for (std::size_t i = 0; i < columns().size(); ++i)
    if (columns()[i].setting) put_cell(group.get(), columns()[i].name, row.cells()[i], columns()[i].units);
  h5::write(group.get(), "ffn_per_layer", result.settings.shape.ffn, {result.settings.shape.ffn.size()},
            {"1", "layer"});
}

void write_samples(hid_t group, const CaseResult& result) {
  const hsize_t ranks = result.seconds.empty() ? 0 : result.seconds.front().size();
  std::vector<double> flat;
  for (const std::vector<double>& step : result.seconds) flat.insert(flat.end(), step.begin(), step.end());
  h5::write(group, "seconds", flat, {result.seconds.size(), ranks}, {"s", "timed step, rank"});
  h5::write(group, "losses", result.losses, {result.losses.size()}, {"nat/token", "step"});
  const auto write_counts = [&](const std::string& name, const std::vector<int>& values,
                                const std::string& axis) {
    h5::write(group, name, std::vector<std::int64_t>(values.begin(), values.end()), {values.size()},
              {"1", axis});
  };
  write_counts("repetition", result.repetition, "timed step");
  write_counts("position", result.position, "repetition");
}

/// [sample][rank] or [repetition][rank] of which a part is written; nothing where it is unavailable.
template <class Row, class Part>
auto table_of(const std::vector<Row>& rows, const Part& part) {
  std::vector<decltype(part(rows.front().front()))> flat;
  for (const Row& row : rows) std::ranges::transform(row, std::back_inserter(flat), part);
  return flat;
}

void write_device(hid_t parent, const CaseResult& result) {
  const h5::Id group = h5::make_group(parent, "device");
  const auto ranks = [](const auto& rows) -> hsize_t { return rows.empty() ? 0 : rows.front().size(); };
  const auto& samples = result.device_samples;
  const auto write_part = [&](const std::string& name, const std::string& units, auto part) {
    h5::write(group.get(), name, table_of(samples, part), {samples.size(), ranks(samples)},
              {units, "timed step, rank"});
  };
  write_part("clock", "MHz", [](const DeviceSample& s) { return s.clock_mhz; });
  write_part("memory_clock", "MHz", [](const DeviceSample& s) { return s.memory_clock_mhz; });
  write_part("temperature", "degC", [](const DeviceSample& s) { return s.temperature_c; });
  write_part("power", "W", [](const DeviceSample& s) { return s.power_w; });
  write_part("throttle", "1", [](const DeviceSample& s) { return s.throttle; });
  h5::write(group.get(), "energy", table_of(result.energy, [](double joules) { return joules; }),
            {result.energy.size(), ranks(result.energy)}, {"J", "repetition, rank"});
  put_text(parent, "counters", result.counters);
}

void write_memory(hid_t parent, const CaseResult& result) {
  const h5::Id group = h5::make_group(parent, "memory");
  std::vector<std::uint64_t> planned, measured, peak, device;
  for (const RankMemory& rank : result.memory) {
    planned.insert(planned.end(), rank.planned.begin(), rank.planned.end());
    measured.insert(measured.end(), rank.measured.begin(), rank.measured.end());
    peak.push_back(rank.process_peak);
    device.push_back(rank.device_used);
  }
  const hsize_t ranks = result.memory.size();
  const h5::Notes notes{"B", "rank, kind", memory_names()};
  h5::write(group.get(), "planned", planned, {ranks, schedule::memory_kinds}, notes);
  h5::write(group.get(), "measured", measured, {ranks, schedule::memory_kinds}, notes);
  h5::write(group.get(), "process_peak", peak, {ranks}, {"B", "rank"});
  h5::write(group.get(), "device_used", device, {ranks}, {"B", "rank"});
}

void write_time(hid_t parent, const CaseResult& result) {
  const h5::Id group = h5::make_group(parent, "time");
  const double length = result.accounted_step < 0 ? std::nan("") : result.accounted_length;
  put_cell(group.get(), "step", std::int64_t{result.accounted_step}, "1");
  put_cell(group.get(), "length", length, "s");
  const auto write_part = [&](const std::string& name, const std::string& units, auto part) {
    std::vector<double> values;
    for (const trace::RankTime& rank : result.time) values.push_back(part(rank));
    h5::write(group.get(), name, values, {values.size()}, {units, "rank"});
  };
  write_part("compute", "s/step", [](const trace::RankTime& rank) { return rank.compute; });
  write_part("exposed", "s/step", [](const trace::RankTime& rank) { return rank.exposed_total(); });
  write_part("idle", "s/step", [](const trace::RankTime& rank) { return rank.idle; });
  write_part("communication", "s/step", [](const trace::RankTime& rank) { return rank.communication; });
  write_part("hidden", "s/step", [](const trace::RankTime& rank) { return rank.hidden; });
  write_part("bubble", "1", [&](const trace::RankTime& rank) { return rank.idle / length; });
  write_part("overlap", "1", [](const trace::RankTime& rank) { return rank.overlap(); });
  std::vector<double> kinds;
  for (const trace::RankTime& rank : result.time)
    kinds.insert(kinds.end(), rank.exposed.begin(), rank.exposed.end());
  h5::write(group.get(), "exposed_by_kind", kinds, {result.time.size(), schedule::traffic_kinds},
            {"s/step", "rank, kind", traffic_names()});
}

void write_bytes(hid_t parent, const CaseResult& result) {
  const h5::Id group = h5::make_group(parent, "bytes");
  const h5::Notes notes{"B/step", "from rank, to rank, kind", traffic_names()};
  const auto write_matrix = [&](const std::string& name, const std::vector<std::uint64_t>& bytes) {
    const hsize_t ranks = bytes.empty() ? 0 : static_cast<hsize_t>(result.settings.ranks);
    h5::write(group.get(), name, bytes, {ranks, ranks, schedule::traffic_kinds}, notes);
  };
  write_matrix("planned", result.planned_bytes);
  write_matrix("counted", result.counted_bytes);
  put_text(group.get(), "source", result.bytes_source);
}

void write_ticks(hid_t group, const CaseResult& result) {
  const std::vector<std::int64_t> idle(result.idle_ticks.begin(), result.idle_ticks.end());
  h5::write(group, "ticks", std::vector{std::int64_t{result.ticks}}, {}, {"tick"});
  h5::write(group, "idle_ticks", idle, {idle.size()}, {"tick", "rank"});
}

void write_used(hid_t group, const CaseResult& result) {
  put_text(group, "attention_used", result.attention);
  put_text(group, "transport_used", result.transport);
  put_text(group, "matmul_algorithms", result.matmul_algorithms);
}

void write_errors(hid_t parent, const CaseResult& result) {
  const h5::Id group = h5::make_group(parent, "verification");
  const auto checked = [](double error) { return error < 0 ? std::nan("") : error; };
  put_cell(group.get(), "gradient_error", checked(result.max_gradient_error), "1");
  put_cell(group.get(), "loss_error", checked(result.max_loss_error), "1");
}

/// A column per field of an event, in the order of the events.
void write_timeline(hid_t parent, const trace::Timeline& timeline) {
  const h5::Id group = h5::make_group(parent, "timeline");
  const std::vector<hsize_t> shape = {timeline.events.size()};
  for (const trace::WholeField& field : trace::whole_fields()) {
    std::vector<std::int64_t> values;
    for (const trace::Event& e : timeline.events) values.push_back(field.value(e));
    h5::write(group.get(), field.name, values, shape, {field.units, "event", {}, field.codes});
  }
  for (const trace::TimeField& field : trace::time_fields()) {
    std::vector<double> values;
    for (const trace::Event& e : timeline.events) values.push_back(e.*field.value);
    h5::write(group.get(), field.name, values, shape, {"s", "event"});
  }
}

}  // namespace

std::string numbered(int number) { return fmt::format("{:04}", number); }

void write_provenance(hid_t parent, const std::string& name, const Provenance& p) {
  const h5::Id group = h5::make_group(parent, name);
  put_text(group.get(), "version", p.version);
  put_text(group.get(), "git_hash", p.git_hash);
  put_text(group.get(), "build_type", p.build_type);
  put_text(group.get(), "compiler", p.compiler);
  put_text(group.get(), "compiler_flags", p.compiler_flags);
  put_text(group.get(), "kokkos", p.kokkos);
  put_text(group.get(), "mpi", p.mpi);
  put_text(group.get(), "nccl", p.nccl);
  put_text(group.get(), "cuda", p.cuda);
  put_text(group.get(), "driver", p.driver);
  put_list(group.get(), "libraries", p.libraries, "library");
  put_text(group.get(), "started", p.started);
  put_text(group.get(), "command", p.command);
  put_text(group.get(), "deck_path", p.deck_path);
  put_text(group.get(), "deck", p.deck);
  put_list(group.get(), "overrides", p.overrides, "override");
  put_list(group.get(), "environment", p.environment, "variable");
  put_list(group.get(), "links", p.links, "property");
  put_list(group.get(), "hosts", p.hosts, "rank of the job");
  const std::vector<std::int64_t> nodes(p.nodes.begin(), p.nodes.end());
  h5::write(group.get(), "nodes", nodes, {nodes.size()}, {"1", "rank of the job"});
  put_list(group.get(), "cores", p.cores, "rank of the job");
  put_list(group.get(), "cpu", p.cpu, "rank of the job");
  put_list(group.get(), "os", p.os, "rank of the job");
  put_list(group.get(), "devices", p.devices, "rank of the job");
  h5::make_column(group.get(), "log", std::string(), {"text", "line"});
}

void write_log_line(hid_t provenance, const std::string& line, hsize_t index) {
  h5::put(provenance, "log", index, line);
}

void write_case(hid_t cases, const CaseResult& result, int number, int session) {
  const h5::Id group = h5::make_group(cases, numbered(number));
  put_cell(group.get(), "session", std::int64_t{session}, "1");
  put_text(group.get(), "status", name_of(result.status));
  put_text(group.get(), "verdict", verdict(result).text());
  put_text(group.get(), "reason", result.reason);
  put_text(group.get(), "started", result.started);
  write_settings(group.get(), result, number, session);
  write_samples(group.get(), result);
  write_device(group.get(), result);
  write_memory(group.get(), result);
  write_time(group.get(), result);
  if (result.timeline) write_timeline(group.get(), *result.timeline);
  write_bytes(group.get(), result);
  write_ticks(group.get(), result);
  write_used(group.get(), result);
  write_errors(group.get(), result);
}

Row sample_row() {
  CaseResult empty;
  empty.settings.shape = {1, 2, 1, 1, {1}, 1, 1, 1};  // any valid one: only the types of its row matter
  return make_row(empty);
}

void make_summary(hid_t root) {
  const h5::Id group = h5::make_group(root, "summary");
  const Row sample = sample_row();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < columns().size(); ++i) {
    h5::make_column(group.get(), columns()[i].name, sample.cells()[i], {columns()[i].units, "case"});
    names.push_back(columns()[i].name);
  }
  h5::write_attribute(group.get(), "columns", names);  // HDF5 keeps no order
}

void write_row(hid_t root, const Row& row, hsize_t index) {
  const h5::Id group = h5::open_group(root, "summary");
  for (std::size_t i = 0; i < columns().size(); ++i)
    h5::put(group.get(), columns()[i].name, index, row.cells()[i]);
}

}  // namespace minitaw::record
