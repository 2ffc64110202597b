// SPDX-License-Identifier: Apache-2.0
// The parts of the worker that the generated dispatch needs, in their simplest form: handles in a map, a driver made by
// the test.
#pragma once

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocol/gen/commands.h"
#include "protocol/gen/handle_kind.h"
#include "worker/session/gen/command_parts.h"
#include "worker/device/gen/driver_table.h"

namespace millpond::worker {

/// Records only which session owns the memory at an address.
class SessionRange {
 public:
  uint64_t device() const { return begin; }

  uint64_t begin = 0;
};
class AddressGate {
 public:
  /// The session has all but what begins there.
  static constexpr uint64_t kStrangers = 0x5712a9;

  CUresult reach(wire::Address address, uint64_t bytes, SessionRange& out) {
    asked.push_back(bytes);
    out.begin = address.value_;
    return address.value_ == kStrangers ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }

  std::vector<uint64_t> asked;
};

class LoopbackWorker {
 public:
  const Driver& driver() const { return table; }
  CommandParts parts() { return {*this, gate, *this, *this, *this, *this}; }
  /// Whether the claim may have another object of a kind.
  CUresult admit(HandleKind) { return CUDA_SUCCESS; }
  /// Structs with addresses in them.
  template <typename T>
  CUresult admit(std::span<const std::byte> bytes, std::vector<T>& out) {
    out.resize(bytes.size() / sizeof(T));
    return CUDA_SUCCESS;
  }
  bool stream(uint64_t wire, CUstream& out) {
    if (wire != 0 && wire != 2) return handle(HandleKind::kStream, wire, out);
    out = reinterpret_cast<CUstream>(wire);
    return true;
  }
  template <typename H>
  bool handle(HandleKind kind, uint64_t wire, H& out) {
    const auto found = handles.find({kind, wire});
    if (found == handles.end()) return false;
    out = static_cast<H>(found->second);
    return true;
  }
  uint64_t wireOf(HandleKind kind, const void* object) {
    for (const auto& [known, each] : handles)
      if (known.first == kind && each == object) return known.second;
    return 0;
  }
  bool functionOrKernel(uint64_t wire, CUfunction& out) { return handle(HandleKind::kFunction, wire, out); }
  bool device(int32_t wire, CUdevice& out) {
    out = wire + 10;  // the session's ordinals differ from the driver's
    return wire >= 0 && wire < 2;
  }
  bool adopt(HandleKind kind, uint64_t wire, void* object) { return handles.insert({{kind, wire}, object}).second; }
  bool drop(HandleKind kind, uint64_t wire) { return handles.erase({kind, wire}) == 1; }
  template <typename R>
  void reply(const R& value) {
    answer.resize(cmd::encodedSize<R>());
    cmd::encode(answer.data(), value);
  }
  /// Each command here is called by code that needs its reply immediately.
  bool isAwaited() const { return true; }
  CUresult violation(const char* what) {
    violations.emplace_back(what);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }

  CUresult onLoad(const cmd::Decoded<cmd::Load>& in);
  CUresult onSyncStream(const cmd::Decoded<cmd::SyncStream>& in);

  AddressGate gate;
  Driver table;
  std::map<std::pair<HandleKind, uint64_t>, void*> handles;
  std::vector<std::byte> answer;
  std::vector<std::string> violations;
};

}  // namespace millpond::worker
