// SPDX-License-Identifier: Apache-2.0
/** All generated files: path from the repository root → content. Pure: same description, same bytes. */
import { commands, driver, loadAbi, structs, tails, workerParts, workerSymbols } from "@millpond/cuda";
import { emitCrossingMembers } from "./crossing.ts";
import { emitExports, emitApiHeader, emitStubs } from "./emit-client.ts";
import { emitApiHash, emitCommands, emitHandleKinds } from "./emit-commands.ts";
import { emitCoverage, emitJson } from "./emit-docs.ts";
import { emitGuard } from "./emit-guard.ts";
import { emitLayouts } from "./emit-layouts.ts";
import { emitLeft } from "./emit-left.ts";
import { emitResolver, emitResolverHeader } from "./emit-resolver.ts";
import { emitTraceTables } from "./emit-trace.ts";
import { emitTypes } from "./emit-types.ts";
import {
  emitCommandParts,
  emitDispatch,
  emitDispatchHeader,
  emitDriverTable,
  emitDriverTableHeader,
} from "./emit-worker.ts";
import { emitNvmlApi, emitNvmlExports } from "./nvml/emit-nvml.ts";
import { emitNvmlCoverage } from "./nvml/emit-nvml-docs.ts";
import { makePlan } from "./plan/planner.ts";

export function generate(): ReadonlyMap<string, string> {
  const plan = makePlan({ abi: loadAbi(), driver, commands, structs, tails });
  return new Map([
    ["native/cuda/gen/cuda_api.h", emitTypes(plan.abi)],
    ["native/cuda/gen/crossing_members.h", emitCrossingMembers(structs)],
    ["native/protocol/gen/commands.h", emitCommands(plan.commands)],
    ["native/protocol/gen/command_layouts.h", emitLayouts(plan)],
    ["native/protocol/gen/command_left.h", emitLeft(plan.commands)],
    ["native/protocol/gen/api_hash.h", emitApiHash(plan.commands)],
    ["native/protocol/gen/handle_kind.h", emitHandleKinds()],
    ["native/client/gen/api.h", emitApiHeader(plan)],
    ["native/client/gen/exports.cpp", emitExports(plan)],
    ...emitStubs(plan),
    ["native/client/gen/trace_tables.cpp", emitTraceTables(plan)],
    ["native/client/gen/resolver.h", emitResolverHeader()],
    ["native/client/gen/resolver.cpp", emitResolver(plan.abi)],
    ["native/worker/device/gen/driver_table.h", emitDriverTableHeader(plan, workerSymbols)],
    ["native/worker/device/gen/driver_table.cpp", emitDriverTable(plan, workerSymbols)],
    ["native/worker/session/gen/command_parts.h", emitCommandParts(workerParts)],
    ["native/worker/testing/gen/guarded_calls.h", emitGuard(plan, workerSymbols)],
    ["native/worker/session/gen/dispatch.h", emitDispatchHeader()],
    ["native/worker/session/gen/dispatch.cpp", emitDispatch(plan, workerParts)],
    ["native/nvml/gen/api.h", emitNvmlApi()],
    ["native/nvml/gen/exports.cpp", emitNvmlExports()],
    ["docs/reference/nvml-functions.md", emitNvmlCoverage()],
    ["docs/reference/cuda-coverage.md", emitCoverage(plan)],
    ["cuda/cuda.json", emitJson(plan)],
  ]);
}
