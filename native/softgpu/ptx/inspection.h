// SPDX-License-Identifier: Apache-2.0
// Accesses that a program compiled with checks reports while it runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "softgpu/ptx/fault_kind.h"

namespace millpond::softgpu::ptx {

/// Checks that compile() inserts before a program's instructions. A program without checks is not slowed down.
struct Checks {
  bool memory = false;          // every access is to memory that the program may use
  bool races = false;           // accesses to shared memory are ordered by barriers
  bool initialisation = false;  // memory that is read was written before
  bool barriers = false;        // threads meet at barriers as the program's text guarantees

  bool any() const { return memory || races || initialisation || barriers; }
  /// Whether loads and stores are checked.
  bool accesses() const { return memory || races || initialisation; }
};

class WrittenBytes;

/// One thread's access, in terms of the program's text. The referenced texts live as long as the program.
struct AccessPlace {
  uint32_t thread[3] = {0, 0, 0};
  uint32_t line = 0;          // of the PTX text
  std::string_view function;  // in whose code
  std::string_view file;      // line of the source, if the PTX names it
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
    kAccess,          // `fault` describes what is wrong with `access`
    kReadAfterWrite,  // of shared memory: `access` is not ordered after `other`
    kWriteAfterRead,
    kWriteAfterWrite,
    kUninitialised,     // a read of memory that was allocated and never written
    kDivergentBarrier,  // threads wait at one barrier at different places: `access` and `other`
    kMissedBarrier,     // threads have ended that should have reached a barrier of the whole block
    kNotAMember,        // a thread synchronises its warp but does not name itself
  };
  Kind kind = Kind::kAccess;
  FaultKind fault = FaultKind::kIllegalAddress;
  bool isFatal = false;  // the device detects it too
  std::string_view space = kSharedName;
  std::string_view kernel;
  uint32_t block[3] = {0, 0, 0};
  AccessPlace access;
  AccessPlace other;
  uint64_t address = 0;  // in shared and local memory: offset from its beginning
  uint32_t bytes = 0;
  std::string_view variable;  // of shared memory, if it has a name
  uint64_t variableOffset = 0;
  uint32_t threads = 0;  // of kMissedBarrier: how many have ended

  bool isRace() const {
    return kind == Kind::kReadAfterWrite || kind == Kind::kWriteAfterRead || kind == Kind::kWriteAfterWrite;
  }
};

/// Receives the findings of a launch. Called concurrently from many threads.
class Inspector {
 public:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;  // begin == end: there is none
    bool writable = false;
    /// Which of its bytes were written, from `begin` on; null: all count as written.
    WrittenBytes* written = nullptr;
  };
  virtual ~Inspector() = default;
  /// The memory around `address` that the launch may use, exactly: never more than the memory map has. It does not
  /// change until the launch ends.
  virtual Range find(uint64_t address) const = 0;
  virtual void found(const Finding& finding) = 0;
};

}  // namespace millpond::softgpu::ptx
