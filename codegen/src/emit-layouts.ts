// SPDX-License-Identifier: Apache-2.0
/**
 * `native/protocol/gen/command_layouts.h`: the memory layout of each command, for the client, which looks for addresses in its
 * commands, and for generators of commands such as the fuzzers.
 */
import type { Command, RequestField, TailMeaning } from "@millpond/cuda";
import { pointee } from "./layout.ts";
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

const hasAddress = (plan: Plan, struct: string): boolean =>
  Object.values(plan.structs[struct] ?? {}).includes("address");

/** The same by the type of the field alone. */
function useOfType(type: RequestField[1], plan: Plan): string | undefined {
  if (type === "address") return "FieldUse::kAddress";
  if (type === "place") return "FieldUse::kPlace";
  return typeof type === "object" && hasAddress(plan, type.of) ? "FieldUse::kStruct" : undefined;
}

/** The content of a tail: for a generated call, an array of structs or of numbers. */
function tailMeaning(command: Command, tail: string, call: PlannedCall | undefined, plan: Plan): TailMeaning {
  const described = plan.tails[command.name]?.[tail];
  if (described !== undefined) return described;
  const type = call?.arguments.find(({ parameter }) => parameter.name === tail)?.parameter.type ?? "";
  return hasAddress(plan, (pointee(type) ?? "").replace(/^const /, "")) ? "words" : "plain";
}

const tailUses: Readonly<Record<TailMeaning, string>> = {
  plain: "TailUse::kPlain",
  words: "TailUse::kWords",
  node: "TailUse::kNode",
};

function layoutText(command: Command, call: PlannedCall | undefined, plan: Plan): string {
  const tails = command.tails ?? [];
  const { fields } = place(command.fields, tails);
  const plain = fields.length - tails.length;
  const texts = fields.map((field, index) => {
    const planned = call?.arguments.find(({ parameter }) => parameter.name === field.name);
    const word = index < plain ? undefined : "FieldUse::kTailBytes";
    const type = command.fields.find(([name]) => name === field.name)?.[1];
    const use = (type && useOfType(type, plan)) ?? (planned && useOf(planned)) ?? word;
    return `    {"${field.name}", ${field.offset}, ${field.size}${use === undefined ? "" : `, ${use}`}},`;
  });
  const uses = tails.map((tail) => tailUses[tailMeaning(command, tail, call, plan)]);
  return [
    `inline constexpr FieldLayout k${command.name}[] = {`,
    ...texts,
    "};",
    ...(uses.length === 0
      ? []
      : [`inline constexpr TailUse k${command.name}Tails[] = {${uses.join(", ")}};`]),
  ].join("\n");
}

function rowText(command: Command): string {
  const tails = command.tails ?? [];
  const { fields, size } = place(command.fields, tails);
  const list = fields.length === 0 ? "{}" : `layouts::k${command.name}`;
  const uses = tails.length === 0 ? "{}" : `layouts::k${command.name}Tails`;
  return `    {Op::k${command.name}, ${size}, ${tails.length}, ${command.reply ? "true" : "false"}, ${list}, ${uses}},`;
}

export function emitLayouts(plan: Plan): string {
  const calls = new Map(plan.calls.map((call) => [call.command.name, call]));
  const withFields = plan.commands.filter((c) => c.fields.length + (c.tails?.length ?? 0) > 0);
  return `${banner("How each command lies in memory, and where addresses are in it.")}#pragma once

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
  kPlace,      ///< an address where something begins, or ends with the command
  kStruct,     ///< a struct with addresses among its words
};

/// Where addresses are in a tail.
enum class TailUse : uint8_t {
  kPlain,  ///< nowhere
  kWords,  ///< at any offset
  kNode,   ///< where graph::NodeRecord and what follows it have them
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
  std::span<const TailUse> tailUses;    ///< of each tail

  /// Whether the worker or its driver may follow an address that the command brings.
  constexpr bool namesMemory() const {
    for (const FieldLayout& field : fields)
      if (field.use == FieldUse::kAddress || field.use == FieldUse::kStruct) return true;
    for (const TailUse use : tailUses)
      if (use != TailUse::kPlain) return true;
    return false;
  }
};

namespace layouts {

${withFields.map((command) => layoutText(command, calls.get(command.name), plan)).join("\n")}

}  // namespace layouts

/// In the order of their numbers, from 1.
inline constexpr CommandLayout kCommandLayouts[] = {
${plan.commands.map(rowText).join("\n")}
};

constexpr const CommandLayout& layoutOf(Op op) { return kCommandLayouts[static_cast<uint16_t>(op) - 1]; }

}  // namespace millpond::cmd
`;
}
