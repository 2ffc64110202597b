// SPDX-License-Identifier: Apache-2.0
// The architecture of the TypeScript folders as a table: `npm run check -- lint` compares the code with it.
import type { ImportRules } from "./import-rules.ts";

/** A layer may import those named here and itself; files directly in the folder wire the layers together. */
export const importRules: ImportRules = {
  layers: {
    "controller/src": {
      timers: [],
      domain: [],
      state: ["domain", "timers"],
      store: ["domain", "state"],
      scheduling: ["domain", "state"],
      agents: ["domain", "timers"],
      reconcile: ["domain", "state", "scheduling"],
      pool: ["domain", "timers", "state", "scheduling", "agents", "reconcile"],
      auth: ["domain", "state"],
      operations: ["domain", "timers", "state", "scheduling", "agents", "reconcile", "pool", "auth"],
      ha: ["domain", "timers", "state", "pool"],
      rpc: ["domain", "timers", "state", "scheduling", "agents", "pool", "auth", "operations", "ha"],
      http: ["domain", "timers", "state", "scheduling", "pool", "auth", "operations", "ha", "rpc"],
      testing: ["", "domain", "timers", "state", "store"],
    },
    "scheduler/src": {
      placement: [""],
      queues: ["", "placement"],
      testing: ["", "placement", "queues"],
    },
  },
  shared: {
    "test → scripts": "end-to-end tests start what was built: its paths",
    "bench → scripts": "the same for measurements",
    "kubernetes → scripts": "the same for its end-to-end tests",
  },
};
