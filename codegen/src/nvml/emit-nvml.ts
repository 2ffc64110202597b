// SPDX-License-Identifier: Apache-2.0
/** The exports of libnvidia-ml.so.1, and the functions that native/nvml must implement for them. */
import {
  nvml,
  type NvmlFunction,
  type NvmlParameter,
  unsupportedNvml,
  unsupportedNvmlTakesDevice,
} from "@millpond/cuda";
import { banner, wrapList } from "../text.ts";

/** A described function that has parameters. */
type Described = Exclude<NvmlFunction, { by: "same" }>;

const functions: ReadonlyMap<string, NvmlFunction> = new Map(
  Object.values(nvml).flatMap((group) => Object.entries<NvmlFunction>(group)),
);

/** `nvmlDeviceGetName` → `deviceGetName`. */
function implementation(name: string): string {
  const bare = name.slice("nvml".length);
  return bare.charAt(0).toLowerCase() + bare.slice(1);
}

function described(name: string): Described {
  const found = functions.get(name);
  if (found === undefined || found.by === "same") {
    throw new Error(`${name} is to answer for another function, and is not described itself`);
  }
  return found;
}

function checkNames(): void {
  const twice = unsupportedNvml.find((name) => functions.has(name));
  if (twice !== undefined) throw new Error(`${twice} is described, and listed as not supported`);
}

/** The parameters in C. */
function parameters(entry: Described): string[] {
  return Object.entries(entry.parameters).flatMap(([name, kind]) => {
    if (kind === "gpu") return [`Handle ${name}`];
    if (kind === "number") return [`unsigned ${name}`];
    if (kind === "long") return [`uint64_t ${name}`];
    if (kind === "string") return [`const char* ${name}`];
    if (kind === "text") return [`char* ${name}`, `unsigned ${name}Room`];
    if ("out" in kind) return [`${kind.out}* ${name}`];
    if ("list" in kind) return [`unsigned* ${name}Count`, `${kind.list}* ${name}`];
    return [`${kind.raw} ${name}`];
  });
}

/** The names of the parameters, for forwarding to a function with the same ones. */
function argumentNames(entry: Described): string[] {
  return parameters(entry).map((parameter) => parameter.slice(parameter.lastIndexOf(" ") + 1));
}

/** A parameter of the implementation. */
function implementationParameter([name, kind]: [string, NvmlParameter]): string {
  if (kind === "gpu") return `const Gpu& ${name}`;
  if (kind === "number") return `unsigned ${name}`;
  if (kind === "long") return `uint64_t ${name}`;
  if (kind === "string") return `std::string_view ${name}`;
  if (kind === "text") return `std::string& ${name}`;
  if ("out" in kind) return `${kind.out}& ${name}`;
  if ("list" in kind) return `std::vector<${kind.list}>& ${name}`;
  return `${kind.raw} ${name}`;
}

/** The argument of the implementation for a parameter. */
function passed([name, kind]: [string, NvmlParameter]): string {
  if (kind === "gpu") return `*${name}Gpu`;
  if (kind === "text") return `${name}Text`;
  if (typeof kind === "object" && "out" in kind) return `*${name}`;
  if (typeof kind === "object" && "list" in kind) return `${name}List`;
  return name;
}

/** The condition under which a required pointer is null; undefined: the parameter is not a pointer. */
function missing([name, kind]: [string, NvmlParameter]): string | undefined {
  if (kind === "string" || kind === "text") return `!${name}`;
  if (typeof kind !== "object" || "raw" in kind) return undefined;
  if ("out" in kind) return `!${name}`;
  return `!${name}Count || (*${name}Count != 0 && !${name})`;
}

/** The statements that compute the answer. */
function answer(name: string, entry: Described): string[] {
  const all = Object.entries<NvmlParameter>(entry.parameters);
  const results = all.filter(([, kind]) => typeof kind === "object" && "out" in kind);
  if (entry.by === "rule") {
    return [...results.map(([result]) => `*${result} = ${entry.value};`), "return kSuccess;"];
  }
  if (entry.by === "member") {
    const [gpu] = all.find(([, kind]) => kind === "gpu") ?? ["device"];
    const [result] = results[0] ?? ["value"];
    return [`return known(${gpu}Gpu->${entry.member}, *${result});`];
  }
  const given = [...(entry.view === true ? ["view"] : []), ...all.map(passed)];
  const call = `api::${implementation(name)}(${given.join(", ")})`;
  const room = all.find(([, kind]) => kind === "text");
  const list = all.find(([, kind]) => typeof kind === "object" && "list" in kind);
  if (room !== undefined) {
    const [text] = room;
    return [
      `std::string ${text}Text;`,
      `const Return result = ${call};`,
      `return result == kSuccess ? put(${text}Text, ${text}, ${text}Room) : result;`,
    ];
  }
  if (list !== undefined) {
    const [items, kind] = list;
    const type = typeof kind === "object" && "list" in kind ? kind.list : "";
    return [
      `std::vector<${type}> ${items}List;`,
      `const Return result = ${call};`,
      `return result == kSuccess ? put(${items}List, ${items}Count, ${items}) : result;`,
    ];
  }
  return [`return ${call};`];
}

function emitFunction(name: string, entry: NvmlFunction): string {
  if (entry.by === "same") {
    const target = described(entry.as);
    const call = `return ${entry.as}(${argumentNames(target).join(", ")});`;
    return `${wrapList(`NVML Return ${name}(`, parameters(target), ") {")}\n  ${call}\n}\n`;
  }
  const lines = [wrapList(`NVML Return ${name}(`, parameters(entry), ") {")];
  if (entry.by !== "hand" || entry.early !== true) {
    lines.push("  if (const Return ready = Library::check(); ready != kSuccess) return ready;");
  }
  const all = Object.entries<NvmlParameter>(entry.parameters);
  const absent = all.map(missing).filter((condition) => condition !== undefined);
  if (absent.length > 0) lines.push(`  if (${absent.join(" || ")}) return kInvalidArgument;`);
  const gpus = all.filter(([, kind]) => kind === "gpu").map(([gpu]) => gpu);
  const body = answer(name, entry);
  if (gpus.length === 0 && !(entry.by === "hand" && entry.view === true)) {
    lines.push(...body.map((line) => `  ${line}`));
  } else {
    lines.push("  return Library::answer([&](const View& view) -> Return {");
    for (const gpu of gpus) {
      lines.push(
        `    const Gpu* const ${gpu}Gpu = view.find(${gpu});`,
        `    if (!${gpu}Gpu) return kInvalidArgument;`,
      );
    }
    lines.push(...body.map((line) => `    ${line}`), "  });");
  }
  lines.push("}");
  return `${lines.join("\n")}\n`;
}

export function emitNvmlExports(): string {
  checkNames();
  const all = [...functions].map(([name, entry]) => emitFunction(name, entry));
  const refusals = unsupportedNvml.map((name) =>
    unsupportedNvmlTakesDevice(name) ? `REFUSED_OF_DEVICE(${name})\n` : `REFUSED(${name})\n`,
  );
  return `${banner("What libnvidia-ml.so.1 exports; the hand-written rest is in native/nvml.")}
#include "nvml/answers.h"
#include "nvml/gen/api.h"
#include "nvml/library.h"

#define NVML extern "C" __attribute__((visibility("default")))

using namespace millpond::nvml;

${all.join("\n")}
// Whatever they are called with: the caller takes its arguments back.
#define REFUSED(name)                                     \\
  NVML Return name() {                                    \\
    static std::atomic<bool> said{false};                 \\
    return Library::refuse(#name, said);                  \\
  }
#define REFUSED_OF_DEVICE(name)                           \\
  NVML Return name(Handle device) {                       \\
    static std::atomic<bool> said{false};                 \\
    return Library::refuse(#name, said, device);          \\
  }

${refusals.join("")}`;
}

export function emitNvmlApi(): string {
  const declarations = [...functions].flatMap(([name, entry]) => {
    if (entry.by !== "hand") return [];
    const given = Object.entries<NvmlParameter>(entry.parameters).map(implementationParameter);
    const view = entry.view === true ? ["const View& view"] : [];
    return [wrapList(`Return ${implementation(name)}(`, [...view, ...given], ");")];
  });
  return `${banner("What native/nvml implements by hand. References are to memory of the caller, which it may change.")}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nvml/types.h"
#include "nvml/view.h"

namespace millpond::nvml::api {

${declarations.join("\n")}

}  // namespace millpond::nvml::api
`;
}
