// SPDX-License-Identifier: Apache-2.0
/** `native/worker/testing/gen/`: a layer between the worker and the driver that checks every address it receives. */
import type { FunctionVariant, Parameter } from "@millpond/cuda";
import { driverSymbols } from "./emit-worker.ts";
import type { Plan } from "./plan/plan.ts";
import { banner, wrapList } from "./text.ts";

/** Parameters of the API that point to host memory which the driver reads or writes. */
const hostMemory: ReadonlySet<string> = new Set(["srcHost", "dstHost"]);
/** Structs that contain others with addresses in them. */
const holders: ReadonlySet<string> = new Set(["CUgraphNodeParams", "CUlaunchConfig"]);

/** Calls that access no memory: queries, and calls that take an address only as a hint. */
const touchesNothing = (symbol: string): boolean => /Get|^cuMemAddressReserve$/.test(symbol);

/** Whether an address can come with the parameter; the guard then checks it. */
function hasAddress({ type, name }: Parameter, plan: Plan): boolean {
  if (type === "CUdeviceptr") return true;
  if (type === "void*" || type === "const void*") return hostMemory.has(name) || name === "globalAddress";
  const target = type.replace(/^const /, "").replace(/\*$/, "");
  if (!type.endsWith("*") || target.endsWith("*")) return false;
  const members = plan.structs[plan.layouts.resolve(target)] ?? plan.structs[target] ?? {};
  return holders.has(target) || Object.values(members).includes("address");
}

function look({ type, name }: Parameter, all: readonly Parameter[]): string {
  const isHost = hostMemory.has(name);
  // The meaning of a struct depends on another parameter.
  const along = all.find((p) =>
    type.includes("BatchMemOp") ? p.name === "count" : p.type.endsWith("AttrID"),
  );
  const isStruct = type.endsWith("*") && !type.endsWith("void*");
  const also = isStruct && along !== undefined ? `, ${along.name}` : "";
  return `  guard.${isHost ? "host" : "see"}(${name}${also});`;
}

function wrapperText(variant: FunctionVariant, plan: Plan): string {
  const names = variant.parameters.map((p) => p.name);
  return [
    wrapList(
      `inline ${variant.returns} ${variant.symbol}(`,
      variant.parameters.map((p) => `${p.type} ${p.name}`),
      ") {",
    ),
    `  DriverGuard::Call guard("${variant.symbol}");`,
    ...variant.parameters.filter((p) => hasAddress(p, plan)).map((p) => look(p, variant.parameters)),
    wrapList(`  return DriverGuard::plain().${variant.symbol}(`, names, ");"),
    "}",
  ].join("\n");
}

export function emitGuard(plan: Plan, byHand: readonly string[]): string {
  const used = new Set(driverSymbols(plan, byHand));
  const guarded = plan.abi.functions.filter(
    (f) => used.has(f.symbol) && !touchesNothing(f.symbol) && f.parameters.some((p) => hasAddress(p, plan)),
  );
  return `${banner("The driver's functions that the worker gives addresses to: each is looked at before the driver has it.")}#pragma once

#include "worker/testing/driver_guard.h"

namespace millpond::worker::guarded {

${guarded.map((f) => wrapperText(f, plan)).join("\n\n")}

/// Replaces the driver's functions with those above.
inline void guardAll(Driver& table) {
${guarded.map((f) => `  table.${f.symbol} = &guarded::${f.symbol};`).join("\n")}
}

}  // namespace millpond::worker::guarded
`;
}
