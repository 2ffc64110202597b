// SPDX-License-Identifier: Apache-2.0
// The objects that commands create, until their end, and the settings that they change: used to keep a journal of
// commands short.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "protocol/gen/command_left.h"
#include "protocol/gen/commands.h"

namespace millpond {

/// An object by its handle, a context by its number, or pinned memory by its address.
struct Subject {
  enum class Kind : uint8_t { kHandle, kContext, kHostMemory };
  Kind kind = Kind::kHandle;
  uint64_t number = 0;
  auto operator<=>(const Subject&) const = default;
};

struct CommandSubject {
  Subject subject;         ///< the object that it creates, or to which its setting belongs
  size_t value = 0;        ///< of a setting: offset of its bytes
  size_t valueBytes = 0;   ///< 0: it creates its subject
  bool hasContext = true;  ///< its subject ends at the latest with the context in which the command is executed
};

/// Whether a command may have a lasting effect that neither the worker's tables nor a journal record.
constexpr bool leavesTrace(cmd::Op op) { return cmd::leftOf(op).leaves == cmd::Leaves::kTrace; }
/// Whether the same command has the same effect in another session.
constexpr bool canRepeat(cmd::Op op) {
  const cmd::Leaves leaves = cmd::leftOf(op).leaves;
  return leaves == cmd::Leaves::kThing || leaves == cmd::Leaves::kSetting;
}
/// The subject of such a command in that context, or of one by which a worker adds to a journal a setting that no
/// command made. None for any other command, and if the body is too short.
std::optional<CommandSubject> subjectOf(cmd::Op op, uint16_t context, std::span<const std::byte> body);

}  // namespace millpond
