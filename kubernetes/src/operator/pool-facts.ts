// SPDX-License-Identifier: Apache-2.0

// The pool's nodes and queues, polled: for the webhooks' checks, for the machines that are nodes of both pool and
// cluster, and for ResourceSlices.

import { setTimeout as delay } from "node:timers/promises";
import type { Node } from "@millpond/api";
import type { Connection } from "@millpond/cli";
import type { Logger } from "pino";
import type { PoolLimits } from "../webhook/pool-limits.ts";

const readMs = 3000;

export class PoolFacts {
  readonly #pool: Pick<Connection, "pool" | "queues">;
  readonly #log: Logger;
  #nodes: readonly Node[] | undefined;
  #limits: PoolLimits | undefined;

  constructor(pool: Pick<Connection, "pool" | "queues">, log: Logger) {
    this.#pool = pool;
    this.#log = log;
  }

  /** Undefined: not known, or no longer known. */
  get limits(): PoolLimits | undefined {
    return this.#limits;
  }

  /** Undefined: not known yet. */
  get nodes(): readonly Node[] | undefined {
    return this.#nodes;
  }

  /** @param onRead Called with each new state. */
  async run(signal: AbortSignal, onRead: (nodes: readonly Node[]) => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      try {
        const [{ nodes }, { queues }] = await Promise.all([
          this.#pool.pool.listNodes({}, { signal }),
          this.#pool.queues.listQueues({}, { signal }),
        ]);
        const parents = new Set(queues.map(({ parent }) => parent));
        const bytes = nodes.flatMap(({ devices }) => devices.map(({ memoryBytes }) => memoryBytes));
        this.#nodes = nodes;
        this.#limits = {
          largestDeviceBytes: bytes.reduce((most, each) => (each > most ? each : most), 0n),
          mostDevices: Math.max(0, ...nodes.map(({ devices }) => devices.length)),
          queues: queues.map(({ name }) => name).filter((name) => !parents.has(name)),
        };
        await onRead(nodes);
      } catch (error) {
        if (signal.aborted) return;
        this.#limits = undefined;
        this.#log.debug({ err: error }, "the pool's nodes could not be read or published");
      }
      await delay(readMs, undefined, { signal }).catch(() => undefined);
    }
  }
}
