// SPDX-License-Identifier: Apache-2.0
/** All generated files: path from the repository root → content. Pure: same description, same bytes. */
import { commands, driver, loadAbi, workerSymbols } from "@millpond/cuda";
import { emitExports, emitApiHeader, emitStubs } from "./emit-client.ts";
import { emitApiHash, emitCommands, emitHandleKinds } from "./emit-commands.ts";
import { emitCoverage, emitJson } from "./emit-docs.ts";
import { emitLayouts } from "./emit-layouts.ts";
import { emitLeft } from "./emit-left.ts";
import { emitResolver, emitResolverHeader } from "./emit-resolver.ts";
import { emitTraceTables } from "./emit-trace.ts";
import { emitTypes } from "./emit-types.ts";
import {
  emitDispatch,
  emitDispatchHeader,
  emitDriverTable,
  emitDriverTableHeader,
  emitHandlers,
} from "./emit-worker.ts";
import { makePlan } from "./plan.ts";

export function generate(): ReadonlyMap<string, string> {
  const plan = makePlan({ abi: loadAbi(), driver, commands });
  return new Map([
    ["native/cuda/gen/cuda_api.h", emitTypes(plan.abi)],
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
    ["native/worker/gen/driver_table.h", emitDriverTableHeader(plan, workerSymbols)],
    ["native/worker/gen/driver_table.cpp", emitDriverTable(plan, workerSymbols)],
    ["native/worker/gen/handlers.h", emitHandlers(plan)],
    ["native/worker/gen/dispatch.h", emitDispatchHeader()],
    ["native/worker/gen/dispatch.cpp", emitDispatch(plan)],
    ["docs/reference/cuda-coverage.md", emitCoverage(plan)],
    ["cuda/cuda.json", emitJson(plan)],
  ]);
}
