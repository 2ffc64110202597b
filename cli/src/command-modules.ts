// SPDX-License-Identifier: Apache-2.0

import type { CommandName } from "./command-table.ts";
import type { CommandModule } from "./command-values.ts";

/** The code of each command, loaded when it is needed and not before. */
export const commandModules: { readonly [N in CommandName]: () => Promise<CommandModule<N>> } = {
  run: () => import("./commands/run.ts"),
  env: () => import("./commands/env.ts"),
  trace: () => import("./commands/trace.ts"),
  sanitize: () => import("./commands/sanitize.ts"),
  apply: () => import("./commands/apply.ts"),
  queue: () => import("./commands/queue.ts"),
  tenant: () => import("./commands/tenant.ts"),
  smi: () => import("./commands/smi.ts"),
  get: () => import("./commands/get.ts"),
  describe: () => import("./commands/describe.ts"),
  why: () => import("./commands/why.ts"),
  usage: () => import("./commands/usage.ts"),
  resize: () => import("./commands/resize.ts"),
  release: () => import("./commands/release.ts"),
  cordon: () => import("./commands/cordon.ts"),
  uncordon: () => import("./commands/uncordon.ts"),
  drain: () => import("./commands/drain.ts"),
  remove: () => import("./commands/remove.ts"),
  label: () => import("./commands/label.ts"),
  token: () => import("./commands/token.ts"),
  store: () => import("./commands/store.ts"),
  up: () => import("./commands/up.ts"),
  doctor: () => import("./commands/doctor.ts"),
  version: () => import("./commands/version.ts"),
  defrag: () => import("./commands/defrag.ts"),
  snapshot: () => import("./commands/snapshot.ts"),
  simulate: () => import("./commands/simulate.ts"),
  completion: () => import("./commands/completion.ts"),
  controller: () => import("./commands/controller.ts"),
  agent: () => import("./commands/agent.ts"),
};
