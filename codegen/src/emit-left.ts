// SPDX-License-Identifier: Apache-2.0
/** `native/protocol/gen/command_left.h`: the state that each command leaves in a worker after it was executed. */
import type { PlannedCommand } from "./plan/plan.ts";
import { banner } from "./text.ts";

const kinds = { handle: "kHandle", context: "kContext", hostMemory: "kHostMemory" } as const;

function rowText({ name, left }: PlannedCommand): string {
  if (left === "trace") return "{Leaves::kTrace}";
  if (left === "books") return "{Leaves::kInBooks}";
  const at = (field: string): string => `offsetof(${name}, ${field})`;
  if ("makes" in left) return `{Leaves::kThing, LeftOf::${kinds[left.kind ?? "handle"]}, ${at(left.makes)}}`;
  if ("tells" in left) return `{Leaves::kWord, LeftOf::kHandle, ${at(left.tells)}}`;
  const of = left.of === undefined ? "LeftOf::kOwnContext, 0" : `LeftOf::kHandle, ${at(left.of)}`;
  return `{Leaves::kSetting, ${of}, ${at(left.sets)}, sizeof(${name}::${left.sets})}`;
}

export function emitLeft(commands: readonly PlannedCommand[]): string {
  const rows = commands.map((command) => `    ${rowText(command)},  // ${command.name}`);
  return `${banner("What is left of each command in a worker that has done it.")}#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/gen/commands.h"

namespace millpond::cmd {

enum class Leaves : uint8_t {
  kTrace,    ///< something that no other worker could have, or of which none would know
  kInBooks,  ///< nothing, or what the worker's books tell
  kThing,    ///< what the same command makes again
  kSetting,  ///< what the same command sets again
  kWord,     ///< nothing: a worker says it for the next one to know
};

/// How a command identifies the object that it creates or modifies.
enum class LeftOf : uint8_t {
  kHandle,
  kContext,     ///< by its number
  kHostMemory,  ///< by its address
  kOwnContext,  ///< the one that the command is in
};

struct Left {
  Leaves leaves = Leaves::kTrace;
  LeftOf of = LeftOf::kHandle;
  uint16_t subject = 0;  ///< offset of the handle, the number or the address
  uint16_t value = 0;    ///< of a setting: offset of what it sets
  uint16_t valueBytes = 0;
};

/// By Op.
inline constexpr Left kLeft[kOpLimit] = {
    {},
${rows.join("\n")}
};

/// Unknown for a number that is not a command.
constexpr const Left& leftOf(Op op) {
  const auto number = static_cast<uint16_t>(op);
  return kLeft[number < kOpLimit ? number : 0];
}

}  // namespace millpond::cmd
`;
}
