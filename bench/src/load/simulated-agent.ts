// SPDX-License-Identifier: Apache-2.0

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { DeviceHealth, SyncRequestSchema, SyncResponseSchema } from "@millpond/api";
import { HttpConnection } from "./http-connection.ts";

const syncPath = "/millpond.v1.AgentService/Sync";

/** Memory of a simulated device, bytes. */
const memoryBytes = 80n << 30n;

export interface AgentOptions {
  readonly url: string;
  readonly token: string;
  readonly node: string;
  readonly devices: number;
  /** Called once for each allocation, after the call that acknowledges it. */
  readonly onAcknowledged: (claim: string) => void;
}

/** An agent without devices and workers: it makes the calls of an agent, one at a time, and accepts every answer. */
export class SimulatedAgent {
  readonly #options: AgentOptions;
  readonly #connection: HttpConnection;
  /** Name and description of the node as encoded bytes: fields of a protobuf message may be concatenated. */
  readonly #name: Uint8Array;
  readonly #description: Uint8Array;
  #known = { knownRevision: 0n, knownTerm: 0n, describedBy: 0n };
  #sequence = 0n;
  #epochs: ReadonlySet<bigint> = new Set();
  #isClosed = false;
  #loop: Promise<void> = Promise.resolve();
  /** Number of calls that were answered. */
  syncs = 0;

  private constructor(options: AgentOptions, connection: HttpConnection) {
    this.#options = options;
    this.#connection = connection;
    const { node } = options;
    this.#name = toBinary(SyncRequestSchema, create(SyncRequestSchema, { node, run: "simulated" }));
    this.#description = describeNode(options);
  }

  /** Starts to call; resolves when the first call has been answered. */
  static async start(options: AgentOptions): Promise<SimulatedAgent> {
    const agent = new SimulatedAgent(options, await HttpConnection.open(options.url, options.token));
    agent.#obey(await agent.#call());
    agent.#loop = agent.#callForEver();
    return agent;
  }

  /** @throws Error when an earlier call was refused or interrupted */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#connection.close();
    await this.#loop;
  }

  async #callForEver(): Promise<void> {
    let granted: readonly string[] = [];
    for (;;) {
      const answer = this.#call();
      for (const claim of granted) this.#options.onAcknowledged(claim);
      try {
        granted = this.#obey(await answer);
      } catch (error) {
        if (this.#isClosed) return;
        throw error;
      }
    }
  }

  async #call(): Promise<Buffer> {
    this.#sequence += 1n;
    const changing = create(SyncRequestSchema, { ...this.#known, sequence: this.#sequence });
    const description = this.#known.describedBy === 0n ? [this.#description] : [];
    const body = Buffer.concat([this.#name, ...description, toBinary(SyncRequestSchema, changing)]);
    return await this.#connection.call(syncPath, body);
  }

  /** @returns the claims that are new in this answer */
  #obey(answer: Buffer): readonly string[] {
    const { revision, term, allocations, describedBy } = fromBinary(SyncResponseSchema, answer);
    this.syncs += 1;
    this.#known = { knownRevision: revision, knownTerm: term, describedBy };
    const before = this.#epochs;
    this.#epochs = new Set(allocations.map(({ epoch }) => epoch));
    return allocations.filter(({ epoch }) => !before.has(epoch)).map(({ claim }) => claim);
  }
}

function describeNode({ node, devices }: AgentOptions): Uint8Array {
  const report = create(SyncRequestSchema, {
    warmWorkers: devices,
    agentUrl: `http://127.0.0.1:7171/${node}`,
    agentVersion: "0.1.0",
    hostname: node,
    bootId: node,
    devices: Array.from({ length: devices }, (_, index) => ({
      index,
      uuid: `GPU-${node}-${index}`,
      name: "Simulated GPU",
      kind: "softgpu",
      memoryBytes,
      pciBusId: `0000:${(16 + index).toString(16)}:00.0`,
      computeCapability: "9.0",
      multiprocessors: 132,
      cudaVersion: 13_000,
      health: DeviceHealth.HEALTHY,
      numaNode: String(index >> 2),
    })),
  });
  return toBinary(SyncRequestSchema, report);
}
