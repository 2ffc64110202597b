// SPDX-License-Identifier: Apache-2.0
// Objects of the program that graphs retain, each with a function of the client that ends it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "worker/commands/graphs/graph_table.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class UserObjects : private SessionPart {
 public:
  UserObjects(SessionCore& session, std::shared_ptr<Callbacks> callbacks, GraphTable& graphs)
      : SessionPart(session), callbacks_(std::move(callbacks)), graphs_(graphs) {}

  CUresult onUserObjectCreate(const cmd::Decoded<cmd::UserObjectCreate>& command);
  CUresult onUserObjectCount(const cmd::Decoded<cmd::UserObjectCount>& command);

 private:
  const std::shared_ptr<Callbacks> callbacks_;
  GraphTable& graphs_;
  std::unordered_map<uint64_t, CUuserObject> all_;
};

}  // namespace millpond::worker
