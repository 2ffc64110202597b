// SPDX-License-Identifier: Apache-2.0
/** `native/worker/gen/`: the driver's functions that the worker uses, and the handler of each command. */
import type { Command, Extent, WorkerPart } from "@millpond/cuda";
import { pointee } from "./layout.ts";
import { handleKindName, handleTypes, presenceField } from "./names.ts";
import { DescriptionError, type Plan, type PlannedArgument, type PlannedCall } from "./plan/plan.ts";
import { banner, guard, wrapList } from "./text.ts";

/** Symbols that the worker looks up, sorted. Throws if the hand-written list contains one that does not exist. */
export function driverSymbols(plan: Plan, byHand: readonly string[]): string[] {
  const known = new Set(plan.abi.functions.map((f) => f.symbol));
  const problems = byHand
    .filter((symbol) => !known.has(symbol))
    .map((symbol) => `worker symbol ${symbol}: there is none`);
  const twice = byHand.filter((symbol, index) => byHand.indexOf(symbol) !== index);
  problems.push(...twice.map((symbol) => `worker symbol ${symbol}: listed twice`));
  if (problems.length > 0) throw new DescriptionError(problems);
  const generated = plan.calls.filter((call) => !call.isWorkerByHand).map((call) => call.driverSymbol);
  return [...new Set([...byHand, ...generated])].sort();
}

export function emitDriverTableHeader(plan: Plan, byHand: readonly string[]): string {
  const members = driverSymbols(plan, byHand).map(
    (symbol) => `  decltype(&::${symbol}) ${symbol} = Absent();`,
  );
  return `${banner("The driver's functions that the worker calls.")}#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond::worker {

/// Stands in for a function that the driver lacks: returns CUDA_ERROR_NOT_SUPPORTED.
struct Absent {
  template <typename... Arguments>
  using Function = CUresult (*)(Arguments...);
  template <typename... Arguments>
  constexpr operator Function<Arguments...>() const {
    return [](Arguments...) -> CUresult { return CUDA_ERROR_NOT_SUPPORTED; };
  }
};

/// Looked up once by name. A function that the driver does not have answers CUDA_ERROR_NOT_SUPPORTED.
struct Driver {
${members.join("\n")}

  /// Fills the table from a library that dlopen returned.
  void load(void* library);
};

}  // namespace millpond::worker
`;
}

export function emitDriverTable(plan: Plan, byHand: readonly string[]): string {
  const lines = driverSymbols(plan, byHand).map((symbol) => `  find(library, "${symbol}", ${symbol});`);
  return `${banner("The driver's functions that the worker calls.")}
#include "worker/device/gen/driver_table.h"

#include <dlfcn.h>

namespace millpond::worker {
namespace {

template <typename Function>
void find(void* library, const char* symbol, Function& function) {
  if (void* found = ::dlsym(library, symbol)) function = reinterpret_cast<Function>(found);
}

}  // namespace

void Driver::load(void* library) {
${lines.join("\n")}
}

}  // namespace millpond::worker
`;
}

/** Members of CommandParts that generated commands use themselves. */
const usedParts = ["session", "addresses", "objects", "functions", "operations"];

/** The part that executes each hand-written command. Throws unless each command has exactly one part. */
function ownersOf(plan: Plan, parts: readonly WorkerPart[]): ReadonlyMap<string, WorkerPart> {
  const names = new Set(plan.commands.filter((c) => plan.handCommands.has(c)).map(({ name }) => name));
  const owners = new Map<string, WorkerPart>();
  const problems: string[] = [];
  for (const part of parts) {
    for (const name of part.commands) {
      const other = owners.get(name);
      if (!names.has(name))
        problems.push(`worker part ${part.member}: ${name} is no command written by hand`);
      if (other !== undefined)
        problems.push(`worker parts ${other.member} and ${part.member} both have ${name}`);
      owners.set(name, part);
    }
  }
  for (const name of names) if (!owners.has(name)) problems.push(`no worker part executes ${name}`);
  for (const member of usedParts) {
    if (!parts.some((part) => part.member === member)) problems.push(`there is no worker part ${member}`);
  }
  if (problems.length > 0) throw new DescriptionError(problems);
  return owners;
}

export function emitCommandParts(parts: readonly WorkerPart[]): string {
  const types = [...new Set(parts.map(({ type }) => type))].sort();
  return `${banner("The parts of a session that execute commands.")}#pragma once

namespace millpond::worker {

${types.map((type) => `class ${type};`).join("\n")}

/// By reference: a session owns them.
struct CommandParts {
${parts.map(({ member, type }) => `  ${type}& ${member};`).join("\n")}
};

}  // namespace millpond::worker
`;
}

export function emitDispatchHeader(): string {
  return `${banner("From a command of the wire to what runs it.")}#pragma once

#include <cstddef>
#include <span>

#include "cuda/gen/cuda_api.h"
#include "protocol/gen/commands.h"
#include "worker/session/gen/command_parts.h"

namespace millpond::worker {

/// Runs one command of a client that need not be trusted and returns the driver's result. \`head\`: a copy of the beginning
/// of its body. An unknown command, a body of the wrong length or a handle that the session does not own is a
/// violation (SessionCore::violation). The tails of a command lie in memory that the client may change
/// meanwhile: parts copy what must stay the same.
CUresult dispatch(const CommandParts& parts, cmd::Op op, std::span<const std::byte> head, std::span<const std::byte> body);

}  // namespace millpond::worker
`;
}

/** `[4]` for four elements, nothing for a single one. */
const dimension = (elements: number | undefined): string => (elements === undefined ? "" : `[${elements}]`);

/** The size of an extent in bytes, as a C++ expression. A dot refers to a member of a struct that was copied before. */
function extentText(extent: Extent): string {
  if ("bytes" in extent) return String(extent.bytes);
  const count = (name: string): string => (name.includes(".") ? name : `in.fixed.${name}`);
  const elements = `${count(extent.elements)}, ${extent.elementBytes ?? 1}`;
  const isOneRow = extent.rows === undefined || extent.pitch === undefined;
  return isOneRow
    ? `bytesOf(${elements})`
    : `bytesOf(${elements}, ${count(extent.pitch ?? "")}, ${count(extent.rows ?? "")})`;
}

interface Step {
  /** Statements before the driver is called. */
  readonly before: readonly string[];
  /** The expression that is passed to the driver. */
  readonly pass: string;
  /** Statements after the call of the driver. */
  readonly after: readonly string[];
}

function step({ parameter, argument }: PlannedArgument, plan: Plan, command: Command): Step {
  const { name, type } = parameter;
  const fixed = `in.fixed.${name}`;
  const violation = (what: string): string => `return parts.session.violation("${command.name}: ${what}");`;
  const target = (pointee(type) ?? "").replace(/^const /, "");
  const tail = `in.tail[${command.tails?.indexOf(name) ?? 0}]`;
  switch (argument.kind) {
    case "value": {
      const isEnum = plan.layouts.declaration(plan.layouts.resolve(type))?.kind === "enum";
      return { before: [], pass: isEnum ? `static_cast<${type}>(${fixed})` : fixed, after: [] };
    }
    case "address":
      return {
        before: [
          `  SessionRange ${name};`,
          guard(
            "  ",
            `const CUresult refused = parts.addresses.reach(${fixed}, ${extentText(argument.extent)}, ${name})`,
            "return refused;",
          ),
        ],
        pass: `${name}.device()`,
        after: [],
      };
    case "device":
      return {
        before: [
          `  CUdevice ${name} = 0;`,
          guard(
            "  ",
            `!parts.session.device(${fixed}, ${name})`,
            violation(`${name} is no device of the session`),
          ),
        ],
        pass: name,
        after: [],
      };
    case "stream":
    case "functionOrKernel": {
      const c = argument.kind === "stream" ? "CUstream" : "CUfunction";
      const noun = argument.kind === "stream" ? "stream" : "function or kernel";
      return {
        before: [
          `  ${c} ${name} = nullptr;`,
          guard(
            "  ",
            `!parts.${argument.kind === "stream" ? "session.stream" : "functions.functionOrKernel"}(${fixed}, ${name})`,
            violation(`${name} is no ${noun} of the session`),
          ),
          // A stream whose creation failed must not be taken for the default stream, which is number 0.
          argument.kind === "stream"
            ? `  if (${name} == nullptr && ${fixed} != 0) return CUDA_ERROR_INVALID_HANDLE;`
            : `  if (${name} == nullptr) return CUDA_ERROR_INVALID_HANDLE;`,
        ],
        pass: name,
        after: [],
      };
    }
    case "handle":
    case "destroys": {
      const kind = handleKindName(argument.of);
      const stranger = violation(`${name} is no ${argument.of} of the session`);
      const look = (indent: string): string =>
        guard(indent, `!parts.session.handle(${kind}, ${fixed}, ${name})`, stranger);
      const declare = `  ${handleTypes[argument.of]} ${name} = nullptr;`;
      // A handle whose creation failed is registered, but refers to nothing.
      const failed = `if (${name} == nullptr) return CUDA_ERROR_INVALID_HANDLE;`;
      if (argument.kind === "handle" && argument.null === "allowed") {
        return {
          before: [declare, `  if (${fixed} != 0) {`, look("    "), `    ${failed}`, "  }"],
          pass: name,
          after: [],
        };
      }
      const drop = guard("  ", `!parts.objects.drop(${kind}, ${fixed})`, stranger);
      return {
        before: [declare, look("  "), ...(argument.kind === "destroys" ? [drop] : []), `  ${failed}`],
        pass: name,
        after: [],
      };
    }
    case "creates":
      return {
        before: [`  ${handleTypes[argument.of]} ${name} = nullptr;`],
        pass: `&${name}`,
        after: [
          `  if (!parts.objects.adopt(${handleKindName(argument.of)}, ${fixed}, result == CUDA_SUCCESS ? ${name} : nullptr)) {`,
          `    ${violation(`${name} is in use already`)}`,
          "  }",
        ],
      };
    case "struct": {
      const at = argument.elements === undefined ? `&${name}` : name;
      const copy = [
        `  ${target} ${name}${dimension(argument.elements)};`,
        `  static_assert(sizeof ${name} == sizeof ${fixed});`,
        `  std::memcpy(${at}, ${fixed}, sizeof ${name});`,
      ];
      const pass = argument.nullable ? `in.fixed.${presenceField(name)} != 0 ? ${at} : nullptr` : at;
      return { before: copy, pass, after: [] };
    }
    case "array":
      if (Object.keys(plan.structs[target] ?? {}).length > 0) {
        return {
          before: [
            `  std::vector<${target}> ${name};`,
            guard(
              "  ",
              `const CUresult refused = parts.operations.admit(${tail}, ${name})`,
              "return refused;",
            ),
            guard(
              "  ",
              `${name}.size() != in.fixed.${argument.count}`,
              violation(`${name} has not the length that ${argument.count} says`),
            ),
          ],
          pass: `${name}.data()`,
          after: [],
        };
      }
      return {
        before: [
          `  if (${tail}.size() / sizeof(${target}) != in.fixed.${argument.count} || ${tail}.size() % sizeof(${target}) != 0) {`,
          `    ${violation(`${name} has not the length that ${argument.count} says`)}`,
          "  }",
          `  std::vector<${target}> ${name}(in.fixed.${argument.count});`,
          `  if (!${tail}.empty()) std::memcpy(${name}.data(), ${tail}.data(), ${tail}.size());`,
        ],
        pass: `${name}.data()`,
        after: [],
      };
    case "string":
      return {
        before: [
          guard("  ", `${tail}.size() > cmd::kMaxStringBytes`, violation(`${name} is too long`)),
          `  const std::string ${name}(reinterpret_cast<const char*>(${tail}.data()), ${tail}.size());`,
        ],
        pass: `${name}.c_str()`,
        after: [],
      };
    case "out": {
      const at = argument.elements === undefined ? `&${name}` : name;
      const pass = argument.isAsked ? `in.fixed.${presenceField(name)} != 0 ? ${at} : nullptr` : at;
      return { before: [`  ${target} ${name}${dimension(argument.elements)}{};`], pass, after: [] };
    }
    case "finds":
      return {
        before: [`  ${target} ${name} = nullptr;`],
        pass: `&${name}`,
        after: [
          `  const uint64_t ${name}Wire = parts.session.wireOf(${handleKindName(argument.of)}, ${name});`,
          `  if (result == CUDA_SUCCESS && ${name}Wire == 0) result = CUDA_ERROR_INVALID_VALUE;`,
        ],
      };
    default:
      return argument satisfies never;
  }
}

/** How an output is written into the reply. */
function report({ parameter, argument }: PlannedArgument, plan: Plan): string[] {
  const { name, type } = parameter;
  if (argument.kind === "finds") return [`    reply.${name} = ${name}Wire;`];
  if (argument.kind !== "out") return [];
  const declared = plan.layouts.declaration(plan.layouts.resolve(pointee(type) ?? ""))?.kind;
  if (declared === "enum") return [`    reply.${name} = static_cast<int32_t>(${name});`];
  if (declared === "struct" || declared === "union" || argument.elements !== undefined) {
    const at = argument.elements === undefined ? `&${name}` : name;
    return [
      `    static_assert(sizeof reply.${name} == sizeof ${name});`,
      `    std::memcpy(reply.${name}, ${at}, sizeof ${name});`,
    ];
  }
  return [`    reply.${name} = ${name};`];
}

export function executorText(call: PlannedCall, plan: Plan): string {
  const { command, driverSymbol } = call;
  const steps = call.arguments.map((a) => step(a, plan, command));
  const passed = steps.map((s) => s.pass);
  if (call.hasImplicitStream) {
    steps.push({
      before: [
        "  CUstream stream = nullptr;",
        guard(
          "  ",
          "!parts.session.stream(in.fixed.stream, stream)",
          `return parts.session.violation("${command.name}: stream is no stream of the session");`,
        ),
        "  if (stream == nullptr && in.fixed.stream != 0) return CUDA_ERROR_INVALID_HANDLE;",
      ],
      pass: "stream",
      after: [],
    });
    passed.push("stream");
  }
  const after = steps.flatMap((s) => s.after);
  const reports = call.arguments.flatMap((a) => report(a, plan));
  const made = call.arguments
    .map(({ argument }) => (argument.kind === "creates" ? argument.of : undefined))
    .find((kind) => kind !== undefined);
  const isUsed = command.fields.length > 0 || (command.tails ?? []).length > 0;
  const lines = [
    wrapList(
      `CUresult run${command.name}(`,
      ["const CommandParts& parts", `const cmd::Decoded<cmd::${command.name}>&${isUsed ? " in" : ""}`],
      ") {",
    ),
    ...steps.flatMap((s) => s.before),
    `  const auto call = parts.session.driver().${driverSymbol};`,
  ];
  if (after.length === 0 && reports.length === 0) {
    lines.push(
      "  if (call == nullptr) return CUDA_ERROR_NOT_SUPPORTED;",
      wrapList("  return call(", passed, ");"),
    );
  } else {
    lines.push(
      ...(made === undefined
        ? [
            "  CUresult result = CUDA_ERROR_NOT_SUPPORTED;",
            wrapList("  if (call != nullptr) result = call(", passed, ");"),
          ]
        : [
            `  CUresult result = parts.objects.admit(${handleKindName(made)});`,
            wrapList(
              "  if (result == CUDA_SUCCESS) result = call == nullptr ? CUDA_ERROR_NOT_SUPPORTED : call(",
              passed,
              ");",
            ),
          ]),
      ...after,
    );
    if (reports.length > 0) {
      lines.push(
        "  if (result == CUDA_SUCCESS) {",
        `    cmd::${command.name}Reply reply{};`,
        ...reports,
        "    parts.session.reply(reply);",
        "  }",
      );
    }
    lines.push("  return result;");
  }
  lines.push("}");
  return lines.join("\n");
}

/** A hand-written command: passed to its part. */
function handedText(name: string, { member }: WorkerPart): string {
  return [
    wrapList(
      `CUresult run${name}(`,
      ["const CommandParts& parts", `const cmd::Decoded<cmd::${name}>& in`],
      ") {",
    ),
    `  return parts.${member}.on${name}(in);`,
    "}",
  ].join("\n");
}

export function emitDispatch(plan: Plan, parts: readonly WorkerPart[]): string {
  const owners = ownersOf(plan, parts);
  const generated = plan.calls.filter((call) => !call.isWorkerByHand);
  const bodies = [
    ...generated.map((call) => executorText(call, plan)),
    ...[...owners].map(([name, part]) => handedText(name, part)),
  ].join("\n\n");
  const entries = plan.commands.map(({ name }) => `    &execute<cmd::${name}, &run${name}>,`);
  const headers = [...new Set(["protocol/gen/handle_kind.h", ...parts.map(({ header }) => header)])].sort();
  const standard = [
    ...(bodies.includes("std::string ") ? ["#include <string>"] : []),
    ...(bodies.includes("std::vector<") ? ["#include <vector>"] : []),
  ];
  return `${banner("From a command of the wire to what runs it.")}
#include "worker/session/gen/dispatch.h"

#include <array>
#include <cstring>
${standard.map((line) => `${line}\n`).join("")}
${headers.map((header) => `#include "${header}"`).join("\n")}

namespace millpond::worker {
namespace {

/// Saturates: then it is more than anything has. So do rows that overlap, which no driver fills.
[[maybe_unused]] uint64_t bytesOf(uint64_t elements, uint64_t elementBytes, uint64_t pitch = 0, uint64_t rows = 1) {
  uint64_t row = 0, before = 0, bytes = 0;
  if (elements == 0 || rows == 0) return 0;
  const bool isTooMuch = __builtin_mul_overflow(elements, elementBytes, &row) ||
                         __builtin_mul_overflow(pitch, rows - 1, &before) ||
                         __builtin_add_overflow(row, before, &bytes) || (rows > 1 && pitch < row);
  return isTooMuch ? UINT64_MAX : bytes;
}

${bodies}

using Bytes = std::span<const std::byte>;
using Handler = CUresult (*)(const CommandParts&, Bytes, Bytes);

/// Runs a command after the checks that precede every command.
template <typename Command, CUresult (*run)(const CommandParts&, const cmd::Decoded<Command>&)>
CUresult execute(const CommandParts& parts, Bytes head, Bytes body) {
  cmd::Decoded<Command> in;
  if (!cmd::decode(head, body, in)) return parts.session.violation("a command has the wrong length");
  // A reply may be deferred until it is due; a command that nothing waits for would defer it forever.
  if (Command::kHasReply && !parts.session.isAwaited()) return parts.session.violation("nobody waits for its answer");
  return run(parts, in);
}

// By Op.
constexpr std::array<Handler, cmd::kOpLimit> kHandlers = {
    nullptr,
${entries.join("\n")}
};

}  // namespace

CUresult dispatch(const CommandParts& parts, cmd::Op op, Bytes head, Bytes body) {
  const auto number = static_cast<uint16_t>(op);
  if (number == 0 || number >= cmd::kOpLimit) return parts.session.violation("no command has this number");
  return kHandlers[number](parts, head, body);
}

}  // namespace millpond::worker
`;
}
