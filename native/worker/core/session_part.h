// SPDX-License-Identifier: Apache-2.0
// The base class of command handlers: gives access to the session under short names.
#pragma once

#include <string>

#include "worker/core/session_core.h"

namespace millpond::worker {

class SessionPart {
 public:
  SessionPart(const SessionPart&) = delete;
  SessionPart& operator=(const SessionPart&) = delete;

 protected:
  explicit SessionPart(SessionCore& session)
      : session_(session),
        driver_(session.driver()),
        devices_(session.devices()),
        link_(session.link()),
        handles_(session.handles()),
        contexts_(session.contexts()),
        captures_(session.captures()),
        marks_(session.marks()) {}
  ~SessionPart() = default;

  CUresult violation(const std::string& what) { return session_.violation(what); }
  template <typename R, typename... Tails>
  void reply(const R& fixed, const Tails&... tails) {
    session_.reply(fixed, tails...);
  }
  template <typename H>
  bool handle(HandleKind kind, uint64_t wire, H& out) {
    return session_.handle(kind, wire, out);
  }
  template <typename S>
  bool stream(uint64_t wire, S& out) {
    return session_.stream(wire, out);
  }
  bool device(int32_t ordinal, CUdevice& out) { return session_.device(ordinal, out); }

  SessionCore& session_;
  const Driver& driver_;
  SessionDevices& devices_;
  ServerLink& link_;
  HandleMap& handles_;
  Contexts& contexts_;
  OpenCaptures& captures_;
  Marks& marks_;
};

}  // namespace millpond::worker
