// SPDX-License-Identifier: Apache-2.0
// The objects that commands make, until their end, and the settings that they change: they keep a journal of commands short.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "protocol/gen/command_left.h"
#include "protocol/gen/commands.h"

namespace millpond {

/// A thing by its handle, a context by its number, or pinned memory by its address.
struct Subject {
  enum class Kind : uint8_t { kHandle, kContext, kHostMemory };
  Kind kind = Kind::kHandle;
  uint64_t number = 0;
  auto operator<=>(const Subject&) const = default;
};

struct CommandSubject {
  Subject subject;         ///< what it makes, or what its setting is of
  size_t value = 0;        ///< of a setting: offset of the bytes that it sets
  size_t valueBytes = 0;   ///< 0: it makes its subject
  bool hasContext = true;  ///< its subject ends with the context that the command is in, if not before
};

/// Whether something may be left of a command that neither the worker's books nor a journal tell.
constexpr bool leavesTrace(cmd::Op op) { return cmd::leftOf(op).leaves == cmd::Leaves::kTrace; }
/// Whether the same command, in another session, makes or sets the same as it did before.
constexpr bool canRepeat(cmd::Op op) {
  const cmd::Leaves leaves = cmd::leftOf(op).leaves;
  return leaves == cmd::Leaves::kThing || leaves == cmd::Leaves::kSetting;
}
/// The subject of such a command in that context, or of one by which a worker adds a setting to a journal that no command has
/// made. None for any other command, and where the body is too short.
std::optional<CommandSubject> subjectOf(cmd::Op op, uint16_t context, std::span<const std::byte> body);

}  // namespace millpond
