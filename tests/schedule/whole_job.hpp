// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/program.hpp"

namespace minitaw::schedule {
/// A program of all ranks of a job, replica after replica, as if they were one replica: with
/// communicators of each, and one for each sum over them.
inline Program whole_job(const Program& one) {
  Program all = one;
  all.replicas = 1;
  all.micro_batches = one.replicas * one.micro_batches;
  all.ranks = {};
  all.communicators = {};
  std::vector<int> sizes;
  const int ranks = std::ssize(one.ranks), communicators = std::ssize(one.communicators);
  for (int replica = 0; replica < one.replicas; ++replica) {
    for (const int size : one.groups.sizes())
      sizes.push_back(size);
    for (const Communicator& of_one : one.communicators) {
      Communicator& c = all.communicators.emplace_back(of_one);
      c.name += " of replica " + std::to_string(replica);
      for (int& rank : c.ranks)
        rank += replica * ranks;
      if (c.ranks.empty())
        c.ranks = {0};  // nobody calls it
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    Communicator& c = all.communicators.emplace_back();
    c.name = "replicas of rank " + std::to_string(rank);
    for (int replica = 0; replica < one.replicas; ++replica)
      c.ranks.push_back(replica * ranks + rank);
  }
  for (int replica = 0; replica < one.replicas; ++replica)
    for (int rank = 0; rank < ranks; ++rank)
      for (Action& a : all.ranks.emplace_back(one.ranks[rank]).actions) {
        if (a.micro_batch >= 0)
          a.micro_batch += replica * one.micro_batches;
        if (a.peer >= 0)
          a.peer += replica * ranks;
        if (a.communicator < 0)
          continue;
        const bool joint = one.communicators[a.communicator].ranks.empty();
        a.communicator =
            joint ? communicators * one.replicas + rank : a.communicator + replica * communicators;
      }
  all.groups = Groups(sizes);
  return all;
}
}  // namespace minitaw::schedule
