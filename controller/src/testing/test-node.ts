// SPDX-License-Identifier: Apache-2.0

import { systemClock } from "../timers/clock.ts";
import { FakeAgent, fakeDevice } from "./fake-agent.ts";

export const devicesPerNode = 4;
export const deviceMemory = 16n * (1n << 30n);

export interface TestNodeOptions {
  /** URLs of the controllers, separated by commas. */
  readonly url: string;
  readonly token: string;
}

/** A node whose agent may be killed. While it lives it calls the current leader. */
export class TestNode implements AsyncDisposable {
  readonly name: string;
  readonly #devices = Array.from({ length: devicesPerNode }, (_, index) => fakeDevice(index, deviceMemory));
  #agent: FakeAgent;

  constructor(name: string, options: TestNodeOptions) {
    this.name = name;
    this.#agent = this.#begin(options);
  }

  get agent(): FakeAgent {
    return this.#agent;
  }

  /** Kills the agent. The next one finds its sessions, which have kept running. */
  async replaceAgent(options: TestNodeOptions): Promise<void> {
    await this.#agent[Symbol.asyncDispose]();
    this.#agent = this.#begin(options, this.#agent);
  }

  /** Devices that the workers of all grants together oversubscribe. */
  crowded(): string[] {
    return this.#devices.flatMap(({ uuid = "" }) => {
      const ofGrants = new Map<number, bigint>();
      for (const { epoch, devices } of this.#agent.sessions.values()) {
        const bytes = devices.find((each) => each.uuid === uuid)?.memoryBytes ?? 0n;
        const most = ofGrants.get(epoch) ?? 0n;
        ofGrants.set(epoch, bytes > most ? bytes : most);
      }
      const sum = [...ofGrants.values()].reduce((all, bytes) => all + bytes, 0n);
      return sum > deviceMemory ? [`the sessions on ${this.name}/${uuid} may use ${sum} bytes`] : [];
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent[Symbol.asyncDispose]();
  }

  #begin({ url, token }: TestNodeOptions, before?: FakeAgent): FakeAgent {
    const { name: node } = this;
    return new FakeAgent({
      url,
      token,
      clock: systemClock,
      node,
      devices: this.#devices,
      isTimeless: true,
      before,
    }).begin();
  }
}
