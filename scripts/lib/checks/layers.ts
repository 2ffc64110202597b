// SPDX-License-Identifier: Apache-2.0
// The architecture of the TypeScript folders as a table: `npm run check -- lint` compares the code with it.
import type { ImportRules } from "./import-rules.ts";

/** A layer may import those named here and itself; files directly in the folder wire the layers together. */
export const importRules: ImportRules = {
  layers: {
    "cli/src": {
      "command-table": [],
      host: ["command-table"],
      help: ["command-table"],
      "command-line": ["command-table", "help"],
      connection: ["command-table", "command-line"],
      service: ["command-table", "command-line"],
      claim: ["command-table", "command-line", "host", "connection"],
      node: ["command-table", "command-line", "host", "connection", "service"],
      output: ["command-line", "connection"],
      trace: ["output"],
      sanitize: [],
      top: ["command-line", "connection", "output"],
      doctor: ["command-table", "command-line", "host", "connection", "output"],
      commands: [
        "command-table",
        "host",
        "help",
        "command-line",
        "connection",
        "service",
        "claim",
        "node",
        "output",
        "trace",
        "sanitize",
        "top",
        "doctor",
      ],
    },
    "agent/src": {
      process: [],
      "run-directory": ["process"],
      workers: ["process", "run-directory"],
      devices: ["workers"],
      reports: ["process", "run-directory", "workers", "devices"],
      sessions: ["process", "run-directory", "workers", "devices", "reports"],
    },
    "bench/src": {
      results: [],
      load: [],
      pool: [],
    },
    "scripts/lib": {
      build: [""],
      checks: [""],
      model: [""],
      package: [""],
    },
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
