// SPDX-License-Identifier: Apache-2.0
/**
 * `native/client/gen/`: the exported symbols, and the calls that need nothing but marshalling. Every implemented symbol has
 * one function in `millpond::client::api`, generated or hand-written; the linker reports missing ones.
 */
import type { FunctionVariant, Parameter } from "@millpond/cuda";
import { pointee } from "./layout.ts";
import { handleKindName, presenceField } from "./names.ts";
import { type Entry, isOutput, type Plan, type PlannedArgument, type PlannedCall } from "./plan/plan.ts";
import { banner, guard, wrapList } from "./text.ts";

const parameterTexts = (parameters: readonly Parameter[]): string[] =>
  parameters.map((p) => `${p.type} ${p.name}`);

/** The function of the namespace `api` that implements an entry; undefined when there is none. */
function implementation(entry: Entry): string | undefined {
  switch (entry.remoting?.style) {
    case "async":
    case "wait":
    case "hand":
    case "local":
      return entry.stem;
    case "same":
      return entry.remoting.as;
    default:
      return undefined;
  }
}

function apiSignature(entry: Entry, head: string, tail: string): string {
  const parameters = parameterTexts(entry.parameters);
  if (entry.isFlavoured) parameters.unshift("Flavour flavour");
  return wrapList(`${head}${entry.stem}(`, parameters, tail);
}

export function emitApiHeader(plan: Plan): string {
  const sections = plan.groupNames.flatMap((group) => {
    const members = plan.entries.filter((e) => e.group === group && implementation(e) === e.stem);
    if (members.length === 0) return [];
    const byHand = members.filter((e) => e.remoting?.style === "hand" || e.remoting?.style === "local");
    const generated = members.filter((e) => !byHand.includes(e));
    const block = (title: string, entries: readonly Entry[]): string[] =>
      entries.length === 0
        ? []
        : [`// ${group}: ${title}`, ...entries.map((e) => apiSignature(e, "CUresult ", ") noexcept;")), ""];
    return [...block("written by hand", byHand), ...block("generated", generated)];
  });
  return `${banner("Every driver call that is answered. The exported symbols call these.")}#pragma once

#include "client/call/flavour.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// Answer of a symbol that is exported but not remoted: CUDA_ERROR_NOT_SUPPORTED, said once in the log for each
/// symbol; CUDA_ERROR_NOT_INITIALIZED before cuInit. \`why\`: a reason that will stay; nullptr: not yet. By hand.
CUresult notRemoted(const char* symbol, const char* why = nullptr) noexcept;

namespace api {

${sections.join("\n")}
}  // namespace api
}  // namespace millpond::client
`;
}

function exportText(entry: Entry, variant: FunctionVariant, symbol: number): string {
  const target = implementation(entry);
  const names = variant.parameters.map((p) => p.name);
  const flavour = entry.isFlavoured
    ? [variant.flavour === "none" ? "Flavour::kLegacy" : "Flavour::kPerThread"]
    : [];
  const why = entry.remoting?.style === "refused" ? [`"${entry.remoting.why}"`] : [];
  const lines = [wrapList(`CUresult ${variant.symbol}(`, parameterTexts(variant.parameters), ") {")];
  if (target === undefined) {
    const refusal = wrapList("    return notRemoted(", [`"${variant.symbol}"`, ...why], ");");
    lines.push("  constexpr auto refuse = [](auto...) noexcept {", refusal, "  };");
  }
  const plain =
    target === undefined
      ? `    return told("${variant.symbol}", refuse());`
      : wrapList(`    return told("${variant.symbol}", api::${target}(`, [...flavour, ...names], "));");
  const traced = target === undefined ? "refuse" : [`&api::${target}`, ...flavour].join(", ");
  lines.push(
    "  if (trace::isOff()) [[likely]]",
    plain,
    wrapList(`  return told("${variant.symbol}", trace::call<${traced}>(`, [String(symbol), ...names], "));"),
    "}",
  );
  return lines.join("\n");
}

/** Every exported symbol: its index is its number in a trace. */
export const exportedSymbols = (plan: Plan): { entry: Entry; variant: FunctionVariant }[] =>
  plan.entries.flatMap((entry) => entry.variants.map((variant) => ({ entry, variant })));

export function emitExports(plan: Plan): string {
  const variants = exportedSymbols(plan).map(({ entry, variant }, symbol) =>
    exportText(entry, variant, symbol),
  );
  return `${banner("The symbols that this library exports: all of the driver's.")}
#include "client/state/call_log.h"
#include "client/gen/api.h"
#include "client/trace/trace.h"
#include "cuda/gen/cuda_api.h"

using namespace millpond::client;

extern "C" {

${variants.join("\n\n")}

}  // extern "C"
`;
}

/** Statements that check an argument and put it into \`wire\`, and the tails that it adds. */
function marshal(
  { parameter, argument }: PlannedArgument,
  plan: Plan,
): { checks: string[]; sets: string[]; creates: string[]; tails: string[] } {
  const { name, type } = parameter;
  const none = { checks: [], sets: [], creates: [], tails: [] };
  const checked = (expression: string): string =>
    guard("  ", `const CUresult r = ${expression}; r != CUDA_SUCCESS`, "return r;");
  const refuse = (condition: string): string => guard("  ", condition, "return CUDA_ERROR_INVALID_VALUE;");
  switch (argument.kind) {
    case "value": {
      const isEnum = plan.layouts.declaration(plan.layouts.resolve(type))?.kind === "enum";
      const checks =
        argument.bits === undefined ? [] : [refuse(`(${name} & ~0x${argument.bits.toString(16)}u) != 0`)];
      if (argument.implies !== undefined) {
        const [bits, others] = argument.implies.map((each) => `0x${each.toString(16)}u`);
        checks.push(refuse(`(${name} & ${bits}) != 0 && (${name} & ${others}) != ${others}`));
      }
      return {
        ...none,
        checks,
        sets: [`  wire.${name} = ${isEnum ? `static_cast<int32_t>(${name})` : name};`],
      };
    }
    case "device":
      return { ...none, sets: [checked(`call.device(${name}, wire.${name})`)] };
    case "address": {
      const sets = [`  wire.${name} = ${name};`];
      if (argument.unlessZero === undefined) return { ...none, sets };
      const counts = argument.unlessZero.map((count) => ` && ${count} != 0`).join("");
      return { ...none, checks: [refuse(`${name} == 0${counts}`)], sets };
    }
    case "stream":
      return { ...none, sets: [checked(`call.stream(${name}, flavour, wire.${name})`)] };
    case "functionOrKernel":
      return { ...none, sets: [checked(`call.functionOrKernel(${name}, wire.${name})`)] };
    case "handle": {
      const look = checked(`call.handle(${handleKindName(argument.of)}, ${name}, wire.${name})`);
      const indented = look.split("\n").map((line) => `  ${line}`);
      return {
        ...none,
        checks: argument.null === "invalidValue" ? [refuse(`${name} == nullptr`)] : [],
        sets: argument.null === "allowed" ? [`  if (${name} != nullptr) {`, ...indented, "  }"] : [look],
      };
    }
    case "destroys":
      // Last of all: the handle is invalid after a success.
      return {
        ...none,
        creates: [checked(`call.destroy(${handleKindName(argument.of)}, ${name}, wire.${name})`)],
      };
    case "creates": {
      const { flags, priority } = argument.traits ?? {};
      const traits = [
        ...(flags === undefined ? [] : [`.flags = ${flags}`]),
        ...(priority === undefined ? [] : [`.priority = ${priority}`]),
      ];
      const items = [
        handleKindName(argument.of),
        `reinterpret_cast<void**>(${name})`,
        `HandleTraits{${traits.join(", ")}}`,
      ];
      return {
        ...none,
        checks: [refuse(`${name} == nullptr`)],
        creates: [wrapList(`  wire.${name} = call.create(`, items, ");")],
      };
    }
    case "struct": {
      const copy = `std::memcpy(wire.${name}, ${name}, sizeof wire.${name});`;
      const times = argument.elements === undefined ? "" : ` * ${argument.elements}`;
      const sizeCheck = `  static_assert(sizeof(*${name})${times} == sizeof wire.${name});`;
      if (!argument.nullable)
        return { ...none, checks: [refuse(`${name} == nullptr`)], sets: [sizeCheck, `  ${copy}`] };
      return {
        ...none,
        sets: [
          sizeCheck,
          `  if (${name} != nullptr) {`,
          `    ${copy}`,
          `    wire.${presenceField(name)} = 1;`,
          "  }",
        ],
      };
    }
    case "array":
      return {
        ...none,
        checks: [
          refuse(`${name} == nullptr && ${argument.count} != 0`),
          guard(
            "  ",
            `${argument.count} > cmd::kMaxTailBytes / sizeof(*${name})`,
            "return CUDA_ERROR_NOT_SUPPORTED;",
          ),
        ],
        tails: [`std::as_bytes(std::span(${name}, ${argument.count}))`],
      };
    case "string":
      return {
        ...none,
        checks: [
          refuse(`${name} == nullptr`),
          `  const std::string_view ${name}Text(${name});`,
          refuse(`${name}Text.size() > cmd::kMaxStringBytes`),
        ],
        tails: [`std::as_bytes(std::span(${name}Text))`],
      };
    case "out":
      return {
        ...none,
        checks: argument.nullable ? [] : [refuse(`${name} == nullptr`)],
        sets: argument.isAsked ? [`  wire.${presenceField(name)} = ${name} != nullptr;`] : [],
      };
    case "finds":
      return { ...none, checks: [refuse(`${name} == nullptr`)] };
    default:
      return argument satisfies never;
  }
}

/** Statements that return an output to the caller. */
function deliver({ parameter, argument }: PlannedArgument, plan: Plan, field: string): string[] {
  const { name, type } = parameter;
  const target = pointee(type) ?? "";
  if (argument.kind === "finds") return [`  *${name} = reinterpret_cast<${target}>(reply.${field});`];
  if (argument.kind !== "out") return [];
  const declared = plan.layouts.declaration(plan.layouts.resolve(target))?.kind;
  let store = `*${name} = reply.${field};`;
  if (declared === "enum") store = `*${name} = static_cast<${target}>(reply.${field});`;
  if (declared === "struct" || declared === "union" || argument.elements !== undefined)
    store = `std::memcpy(${name}, reply.${field}, sizeof reply.${field});`;
  return [argument.nullable ? `  if (${name} != nullptr) ${store}` : `  ${store}`];
}

/** A call's fields have the names of its parameters, except in a hand-written command, which has its own. */
function withFieldNames(call: PlannedCall, lines: readonly string[]): string[] {
  if (!call.isWorkerByHand) return [...lines];
  const renamed = new Map<string, string>();
  let next = 0;
  for (const { parameter, argument } of call.arguments) {
    if (argument.kind === "out" && argument.isAsked)
      renamed.set(presenceField(parameter.name), call.command.fields[next++]?.[0] ?? "");
    if (isOutput(argument) || argument.kind === "array" || argument.kind === "string") continue;
    renamed.set(parameter.name, call.command.fields[next++]?.[0] ?? parameter.name);
    if (argument.kind === "struct" && argument.nullable)
      renamed.set(presenceField(parameter.name), call.command.fields[next++]?.[0] ?? "");
  }
  return lines.map((line) =>
    line.replace(/\bwire\.(\w+)/g, (_, name: string) => `wire.${renamed.get(name) ?? name}`),
  );
}

/** The call of the hand-written check, where there is one. */
function preconditionCheck({ entry, remoting }: PlannedCall): string[] {
  if (remoting.precondition === undefined) return [];
  const items = ["call", ...entry.parameters.map(({ name }) => name)];
  const check = `precondition::${remoting.precondition}(${items.join(", ")})`;
  return [guard("  ", `const CUresult r = ${check}; r != CUDA_SUCCESS`, "return r;")];
}

/** The hook that may make the call in another way, where there is one. */
function alternative({ remoting }: PlannedCall): string[] {
  if (remoting.instead === undefined) return [];
  return [guard("  ", `const auto done = instead::${remoting.instead}(call, wire)`, "return *done;")];
}

/** The hook to run after the command is sent, where there is one. */
function effect({ remoting }: PlannedCall, tails: readonly string[]): string[] {
  if (remoting.effect === undefined) return [];
  const told = `effect::${remoting.effect}(${["call", "wire", ...tails].join(", ")});`;
  return [guard("  ", "result == CUDA_SUCCESS", told)];
}

/** The source of the call's context: one of the client's `Needs`. */
function neededContext({ remoting, arguments: given }: PlannedCall): string {
  if (remoting.context === "none") return "kNothing";
  const hasOwn = given.some(({ argument: { kind } }) =>
    ["stream", "handle", "functionOrKernel", "destroys"].includes(kind),
  );
  return remoting.context === "current" || !hasOwn ? "kCurrent" : "kAny";
}

export function callText(call: PlannedCall, plan: Plan): string {
  const { entry, command, remoting } = call;
  const parts = call.arguments.map((a) => marshal(a, plan));
  const tails = parts.flatMap((p) => p.tails);
  const outputs = call.arguments.filter(({ argument }) => isOutput(argument));
  const sets = parts.flatMap((p) => p.sets);
  if (call.hasImplicitStream) {
    sets.push(
      "  if (const CUresult r = call.stream(nullptr, flavour, wire.stream); r != CUDA_SUCCESS) return r;",
    );
  }
  const lines = [
    apiSignature(entry, "CUresult ", ") noexcept {"),
    `  Call call("${entry.stem}", Needs::${neededContext(call)});`,
    "  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;",
    ...parts.flatMap((p) => p.checks),
    `  cmd::${command.name} wire{};`,
    ...sets,
    ...preconditionCheck(call),
    ...alternative(call),
    ...parts.flatMap((p) => p.creates),
  ];
  // After the command in the stream: later queries are answered after the change.
  const forget = call.forgets && call.subject !== undefined ? [`  call.forget(wire.${call.subject});`] : [];
  const after = [...forget, ...effect(call, tails)];
  if (remoting.style === "async" && after.length === 0) {
    lines.push(wrapList("  return call.post(", ["wire", ...tails], ");"));
  } else if (remoting.style === "async") {
    lines.push(
      wrapList("  const CUresult result = call.post(", ["wire", ...tails], ");"),
      ...after,
      "  return result;",
    );
  } else if (remoting.once) {
    lines.push(`  return call.waitOnce(wire.${call.subject}, wire);`);
  } else {
    lines.push(`  cmd::${command.name}Reply reply{};`);
    const wait =
      remoting.cached === undefined
        ? wrapList("call.wait(", ["wire", "reply", ...tails], ")")
        : `call.waitCached(${call.subject === undefined ? "0" : `wire.${call.subject}`}, wire, reply)`;
    if (outputs.length === 0) {
      lines.push(`  return ${wait};`);
    } else {
      lines.push(
        guard("  ", `const CUresult r = ${wait}; r != CUDA_SUCCESS`, "return r;"),
        ...outputs.flatMap((output, index) => deliver(output, plan, command.reply?.fields[index]?.[0] ?? "")),
        "  return CUDA_SUCCESS;",
      );
    }
  }
  lines.push("}");
  return withFieldNames(call, lines).join("\n");
}

export function emitStubs(plan: Plan): [path: string, content: string][] {
  return plan.groupNames.flatMap((group): [string, string][] => {
    const calls = plan.calls.filter((call) => call.entry.group === group);
    if (calls.length === 0) return [];
    const bodies = calls.map((call) => callText(call, plan)).join("\n\n");
    const standard = [
      ...(bodies.includes("std::memcpy") ? ["#include <cstring>"] : []),
      ...(bodies.includes("std::span") ? ["#include <span>"] : []),
      ...(bodies.includes("std::string_view") ? ["#include <string_view>"] : []),
    ];
    const content = `${banner(`Driver calls of the group ${group}: check, write the command, wait where there is an answer.`)}
${standard.length > 0 ? `${standard.join("\n")}\n\n` : ""}#include "client/call/call.h"
${bodies.includes("effect::") ? '#include "client/call/command_effects.h"\n' : ""}#include "client/gen/api.h"
${bodies.includes("instead::") ? '#include "client/calls/memory/copies.h"\n' : ""}${bodies.includes("precondition::") ? '#include "client/call/preconditions.h"\n' : ""}#include "protocol/gen/commands.h"

namespace millpond::client::api {

${bodies}

}  // namespace millpond::client::api
`;
    const name = group.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    return [[`native/client/gen/stubs_${name}.cpp`, content]];
  });
}
