// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/chakra/chakra.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fmt/ranges.h>
#include <fstream>
#include <map>
#include <string_view>
#include <vector>
#include "base/error.hpp"
#include "schedule/account.hpp"
#include "schedule/execute.hpp"
#include "trace/timeline.hpp"

namespace minitaw::chakra {
namespace {
using schedule::Action, schedule::Kind;

/// A message in the wire format of Protocol Buffers: fields in a row, each a key and a number or
/// text.
class Message {
public:
  Message& number(int field, std::uint64_t value) { return varint(field << 3).varint(value); }

  Message& text(int field, std::string_view value) { return varint(field << 3 | 2).sized(value); }

  Message& sized(std::string_view value) {
    varint(value.size());
    bytes += value;
    return *this;
  }

  std::string bytes{};

private:
  Message& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
    return *this;
  }
};

// Numbers of fields and values in et_def.proto.
enum NodeType : std::uint8_t {
  compute_node = 4,
  send_node = 5,
  recv_node = 6,
  collective_node = 7
};

enum ValueType : std::uint8_t {
  int32_val = 7,
  int64_val = 9,
  uint64_val = 13,
  bool_val = 27,
  string_val = 29
};

constexpr int id = 1, name = 2, type = 3, ctrl_deps = 4, data_deps = 5, duration_micros = 7,
              attr = 10;

/// An AttributeProto.
std::string attribute(std::string_view what, ValueType value_type, std::uint64_t value) {
  return Message().text(1, what).number(value_type, value).bytes;
}

std::string attribute(std::string_view what, std::string_view value) {
  return Message().text(1, what).text(string_val, value).bytes;
}

using Ids = std::vector<std::uint64_t>;

/// The nodes of one rank.
class RankTrace {
public:
  RankTrace(const schedule::Program& program,
      const model::Layout& layout,
      const schedule::Matching& matching,
      int rank)
      : program_(program),
        layout_(layout),
        matching_(matching),
        rank_(rank) {}

  /// Returns the file.
  std::string run(const schedule::Costs& costs, const schedule::Footprint& memory) && {
    file_.sized(Message().text(1, "0.0.4").text(2, attribute("schedule", program_.schedule)).bytes);
    for (const auto& [slot, bytes] : memory.slots)
      slot_bytes_[schedule::name_of(slot)] = bytes;
    for (const Action& a : program_.ranks[rank_].actions) {
      if (a.kind == Kind::join)
        break;
      const bool collects = is_collective(a.kind) && ring(a).size() > 1;
      if (is_point_to_point(a.kind))
        message(a);
      else if (!collects)
        compute(a, costs(rank_, a));
      else if (is_rooted(a.kind))
        chain(a);
      else
        collective(a);
      finished_[index_of(a.lane)].push_back(next_ - 1);
      ++action_;
    }
    return std::move(file_.bytes);
  }

private:
  const std::vector<int>& ring(const Action& a) const {
    return program_.communicators[a.communicator].ranks;
  }

  schedule::Sides sides() const {
    return matching_.sides_of(matching_.transfer_of({rank_, action_}));
  }

  Ids needs_of(const Action& a) const {
    Ids needs;
    for (std::size_t l = 0; l < schedule::lanes; ++l) {
      const std::size_t count = l == index_of(a.lane) ? finished_[l].size() : a.waits[l];
      if (count > 0)
        needs.push_back(finished_[l][count - 1]);
    }
    return needs;
  }

  void add(NodeType node_type,
      const Ids& needs,
      std::initializer_list<std::string> attributes,
      double seconds = 0) {
    const Action& a = program_.ranks[rank_].actions[action_];
    Message node;
    node.number(id, next_++).text(name, schedule::to_text(a, program_)).number(type, node_type);
    // ASTRA-sim has one send or collective of a rank under way: they take their turns as issued, or
    // ranks block.
    for (std::size_t l = 1; l < schedule::lanes && node_type == collective_node; ++l)
      if (!finished_[l].empty())
        node.number(ctrl_deps, finished_[l].back());
    for (const std::uint64_t need : needs)
      node.number(data_deps, need);
    node.number(duration_micros, static_cast<std::uint64_t>(std::llround(seconds * 1e6)));
    for (const std::string& each : attributes)
      node.text(attr, each);
    file_.sized(node.text(attr, attribute("is_cpu_op", bool_val, 0)).bytes);
  }

  void compute(const Action& a, double seconds) {
    std::uint64_t touched = 0;
    for (const schedule::Access& access : accesses(a, rank_))
      touched +=
          slot_bytes_.at(schedule::name_of(access.slot)) * (access.read && access.write ? 2 : 1);
    const auto operations = static_cast<std::uint64_t>(flops(a, layout_));
    add(compute_node,
        needs_of(a),
        {attribute("num_ops", int64_val, operations),
            attribute("tensor_size", uint64_val, touched)},
        seconds);
  }

  void transfer(int from, int to, int tag, double bytes, const Ids& needs) {
    add(from == rank_ ? send_node : recv_node,
        needs,
        {attribute("comm_size", int64_val, static_cast<std::uint64_t>(bytes)),
            attribute("comm_src", int32_val, from),
            attribute("comm_dst", int32_val, to),
            attribute("comm_tag", int32_val, tag)});
  }

  void message(const Action& a) {
    const schedule::Place send = sides()[0], receive = sides()[1];
    transfer(send.rank, receive.rank, send.action, moved_bytes(a, layout_), needs_of(a));
  }

  void collective(const Action& a) {
    const bool gathers = a.kind == Kind::all_gather;
    const double bytes = moved_bytes(a, layout_) / (gathers ? ring(a).size() : 1);
    add(collective_node,
        needs_of(a),
        {attribute("comm_type",
             int64_val,
             gathers                      ? 2
             : a.kind == Kind::all_reduce ? 0
                                          : 7),
            attribute("comm_size", int64_val, static_cast<std::uint64_t>(bytes)),
            attribute("pg_name", std::to_string(a.communicator + 1))});
  }

  /// Receives from the member before and sends on to the next, where there are such, in as many
  /// pieces as links.
  void chain(const Action& a) {
    const schedule::Sides calls = sides();
    const auto n = static_cast<int>(calls.size());
    const auto place = [&](int rank) {
      return static_cast<int>(std::ranges::find(ring(a), rank) - ring(a).begin());
    };
    const auto send_of = [&](int member) {
      return schedule::ring_send(a.kind, n, n, member, place(a.peer));
    };
    const schedule::RingSend mine = send_of(place(rank_));
    const int before = (2 * place(rank_) - mine.to + n) % n;
    Ids received = needs_of(a), sent = received;
    for (int piece = 0; piece < n - 1; ++piece) {
      const double bytes = slice(std::llround(moved_bytes(a, layout_)), n - 1, piece).count;
      if (send_of(before).elements > 0) {
        transfer(calls[before].rank, rank_, calls[before].action, bytes, received);
        received = {next_ - 1};
        sent.push_back(next_ - 1);
      }
      if (mine.elements > 0) {
        transfer(rank_, calls[mine.to].rank, action_, bytes, sent);
        sent = {next_ - 1};
      }
    }
  }

  const schedule::Program& program_;
  const model::Layout& layout_;
  const schedule::Matching& matching_;
  int rank_, action_ = 0;
  std::map<std::string, std::uint64_t> slot_bytes_;
  std::array<Ids, schedule::lanes> finished_;  ///< last node of each action, by lane
  std::uint64_t next_ = 0;                     ///< id of the next node
  Message file_;
};

void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush())
    throw InputError(fmt::format("{} cannot be written", path.string()));
}
}  // namespace

void write_chakra(const schedule::Program& program,
    const model::Layout& layout,
    const schedule::Device& device,
    const std::vector<std::int64_t>& micro_batch_per_rank,
    const std::filesystem::path& folder) {
  std::error_code error;  // the first file that cannot be written says enough
  std::filesystem::create_directories(folder, error);
  const schedule::Matching matching = schedule::detail::match(program);
  const schedule::Costs costs = costs_of(program, layout, device, micro_batch_per_rank);
  const std::vector<schedule::Footprint> memory =
      schedule::memory(program, layout, micro_batch_per_rank);
  for (int r = 0; r < std::ssize(program.ranks); ++r)
    write(folder / fmt::format("minitaw.{}.et", r),
        RankTrace(program, layout, matching, r).run(costs, memory[r]));
  std::vector<std::string> groups;
  for (const schedule::Communicator& c : program.communicators)
    groups.push_back(fmt::format("\"{}\": [{}]", groups.size() + 1, fmt::join(c.ranks, ", ")));
  write(folder / "comm_groups.json", fmt::format("{{{}}}\n", fmt::join(groups, ",\n ")));
}
}  // namespace minitaw::chakra
