// SPDX-License-Identifier: Apache-2.0
// Accesses that a program compiled with checks reports while it runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "softgpu/ptx/fault_kind.h"

namespace millpond::softgpu::ptx {

/// Checks that compile() puts in front of a program's instructions. A program without any runs as fast as ever.
struct Checks {
  bool memory = false;          // every access is of memory that the program may use
  bool races = false;           // accesses of shared memory are ordered by barriers
  bool initialisation = false;  // memory that is read was written before
  bool barriers = false;        // threads meet at barriers as the program's text promises

  bool any() const { return memory || races || initialisation || barriers; }
  /// Whether loads and stores are looked at.
  bool accesses() const { return memory || races || initialisation; }
};

class WrittenBytes;

/// One thread's access, in terms of the program's text. The referenced texts live as long as the program.
struct AccessPlace {
  uint32_t thread[3] = {0, 0, 0};
  uint32_t line = 0;          // of the PTX text
  std::string_view function;  // in whose code
  std::string_view file;      // of the source, where the PTX names it
  uint32_t fileLine = 0;
  bool isWrite = false;
  bool isAtomic = false;
};

/// The names of state spaces in findings.
inline constexpr std::string_view kGlobalName = "global";
inline constexpr std::string_view kConstName = "const";
inline constexpr std::string_view kSharedName = "shared";
inline constexpr std::string_view kLocalName = "local";

struct Finding {
  enum class Kind : uint8_t {
    kAccess,          // `fault` says what is wrong with `access`
    kReadAfterWrite,  // of shared memory: `access` does not wait for `other`
    kWriteAfterRead,
    kWriteAfterWrite,
    kUninitialised,     // a read of memory that was allocated and never written
    kDivergentBarrier,  // threads wait at one barrier at different places: `access` and `other`
    kMissedBarrier,     // threads have ended that a barrier of the whole block should have met
    kNotAMember,        // a thread synchronises its warp and does not name itself
  };
  Kind kind = Kind::kAccess;
  FaultKind fault = FaultKind::kIllegalAddress;
  bool isFatal = false;  // the device notices it too
  std::string_view space = kSharedName;
  std::string_view kernel;
  uint32_t block[3] = {0, 0, 0};
  AccessPlace access;
  AccessPlace other;
  uint64_t address = 0;  // in shared and local memory: from its beginning
  uint32_t bytes = 0;
  std::string_view variable;  // of shared memory, where it is one with a name
  uint64_t variableOffset = 0;
  uint32_t threads = 0;  // of kMissedBarrier: how many have ended

  bool isRace() const {
    return kind == Kind::kReadAfterWrite || kind == Kind::kWriteAfterRead || kind == Kind::kWriteAfterWrite;
  }
};

/// Receives the findings of a launch. Called from many threads at once.
class Inspector {
 public:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;  // begin == end: nothing
    bool writable = false;
    /// Which of its bytes were written, from `begin` on; null: all count as written.
    WrittenBytes* written = nullptr;
  };
  virtual ~Inspector() = default;
  /// The memory around `address` that the launch may use, to the byte: never more than the memory map has. It stays as
  /// it is until the launch ends.
  virtual Range find(uint64_t address) const = 0;
  virtual void found(const Finding& finding) = 0;
};

}  // namespace millpond::softgpu::ptx
