// SPDX-License-Identifier: Apache-2.0
/**
 * `native/protocol/gen/command_layouts.h`: the memory layout of each command, for generators of commands such as the
 * fuzzers.
 */
import type { Command } from "@millpond/cuda";
import { handleKindName } from "./names.ts";
import type { Plan, PlannedArgument, PlannedCall } from "./plan/plan.ts";
import { banner } from "./text.ts";
import { place } from "./wire.ts";

/** The meaning of a field, as a C++ enumerator; undefined where the field is a plain number. */
function useOf({ argument }: PlannedArgument): string | undefined {
  switch (argument.kind) {
    case "handle":
    case "destroys":
      return `FieldUse::kHandle, ${handleKindName(argument.of)}`;
    case "stream":
      return `FieldUse::kHandle, ${handleKindName("stream")}`;
    case "functionOrKernel":
      return `FieldUse::kHandle, ${handleKindName("function")}`;
    case "creates":
      return `FieldUse::kNewHandle, ${handleKindName(argument.of)}`;
    default:
      return undefined;
  }
}

function layoutText(command: Command, call: PlannedCall | undefined): string {
  const tails = command.tails ?? [];
  const { fields } = place(command.fields, tails);
  const plain = fields.length - tails.length;
  const texts = fields.map((field, index) => {
    const planned = call?.arguments.find(({ parameter }) => parameter.name === field.name);
    const word = index < plain ? undefined : "FieldUse::kTailBytes";
    const use = field.type === "address" ? "FieldUse::kAddress" : ((planned && useOf(planned)) ?? word);
    return `    {"${field.name}", ${field.offset}, ${field.size}${use === undefined ? "" : `, ${use}`}},`;
  });
  return [`inline constexpr FieldLayout k${command.name}[] = {`, ...texts, "};"].join("\n");
}

function rowText(command: Command): string {
  const tails = command.tails ?? [];
  const { fields, size } = place(command.fields, tails);
  const list = fields.length === 0 ? "{}" : `layouts::k${command.name}`;
  return `    {Op::k${command.name}, ${size}, ${tails.length}, ${command.reply ? "true" : "false"}, ${list}},`;
}

export function emitLayouts(plan: Plan): string {
  const calls = new Map(plan.calls.map((call) => [call.command.name, call]));
  const withFields = plan.commands.filter((c) => c.fields.length + (c.tails?.length ?? 0) > 0);
  return `${banner("How each command lies in memory: for whoever makes commands up, as the tests do.")}#pragma once

#include <cstdint>
#include <span>

#include "protocol/gen/commands.h"
#include "protocol/gen/handle_kind.h"

namespace millpond::cmd {

enum class FieldUse : uint8_t {
  kPlain,
  kHandle,     ///< one that the session must have, or for streams 0; commands that are run by hand do not say so
  kNewHandle,  ///< one that it must not have yet
  kTailBytes,  ///< the length of a tail
  kAddress,    ///< something lies there for the worker or its driver
};

struct FieldLayout {
  const char* name;
  uint16_t offset;
  uint16_t bytes;
  FieldUse use = FieldUse::kPlain;
  HandleKind kind = HandleKind::kStream;  ///< of handles
};

struct CommandLayout {
  Op op;
  uint16_t fixedBytes;
  uint16_t tails;
  bool hasReply;
  std::span<const FieldLayout> fields;  ///< the lengths of the tails last
};

namespace layouts {

${withFields.map((command) => layoutText(command, calls.get(command.name))).join("\n")}

}  // namespace layouts

/// In the order of their numbers, from 1.
inline constexpr CommandLayout kCommandLayouts[] = {
${plan.commands.map(rowText).join("\n")}
};

constexpr const CommandLayout& layoutOf(Op op) { return kCommandLayouts[static_cast<uint16_t>(op) - 1]; }

}  // namespace millpond::cmd
`;
}
