#include <fmt/format.h>

#include "schedule/validate_detail.hpp"

namespace minitaw::schedule::detail {
namespace {

constexpr std::array<int, lanes> no_readers = [] {
  std::array<int, lanes> none{};
  none.fill(-1);
  return none;
}();

/// Who touched a slot last: the writer of its content and, per lane, the last reader of that content.
struct Users {
  int writer = -1;
  std::array<int, lanes> readers = no_readers;
};

class HazardCheck {
public:
  HazardCheck(const Program& program, int rank, const LocalOrder& order)
      : program_(program), rank_(rank), actions_(program.ranks[rank].actions), order_(order) {
    for (int c = 0; c < slot_classes; ++c) users_[c].resize(program.ranks[rank].slots[c]);
  }

  void run() {
    for (int i = 0; i < static_cast<int>(actions_.size()); ++i)
      for (const Access& access : accesses(actions_[i], rank_)) touch(i, access);
  }

private:
  void touch(int i, const Access& access) {
    Users& users = users_[static_cast<std::size_t>(access.slot.cls)][access.slot.index];
    if (access.read) check_read(i, access.slot, users);
    if (access.write) {
      check_write(i, access.slot, users);
      users = {.writer = i};
    } else {
      users.readers[static_cast<std::size_t>(actions_[i].lane)] = i;
    }
  }

  /// Whether `earlier` is certainly finished when `later` starts.
  [[nodiscard]] bool ordered(int earlier, int later) const {
    return earlier < 0 ||
           order_.position[earlier] < order_.start[later][static_cast<std::size_t>(actions_[earlier].lane)];
  }

  void check_read(int i, Slot slot, const Users& users) const {
    if (!ordered(users.writer, i)) fail(Rule::fresh_reads, i, slot, "reads", "written", users.writer);
  }

  void check_write(int i, Slot slot, const Users& users) const {
    if (!ordered(users.writer, i)) fail(Rule::no_overwrite, i, slot, "overwrites", "written", users.writer);
    for (const int reader : users.readers)
      if (!ordered(reader, i)) fail(Rule::no_overwrite, i, slot, "overwrites", "read", reader);
  }

  [[noreturn]] void fail(Rule rule, int i, Slot slot, std::string_view does, std::string_view done,
                         int other) const {
    const Lane lane = actions_[other].lane;
    refuse(rule, program_, rank_, i,
           fmt::format("{} {}, which may still be {} by {}; expected a wait for {} actions of lane {}", does,
                       name_of(slot), done, place(program_, rank_, other), order_.position[other] + 1,
                       name_of(lane)));
  }

  const Program& program_;
  int rank_;
  const std::vector<Action>& actions_;
  const LocalOrder& order_;
  std::array<std::vector<Users>, slot_classes> users_;
};

}  // namespace

void check_hazards(const Program& program, int rank, const LocalOrder& order) {
  HazardCheck(program, rank, order).run();
}

}  // namespace minitaw::schedule::detail
