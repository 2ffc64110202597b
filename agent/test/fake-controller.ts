// SPDX-License-Identifier: Apache-2.0

import { generateKeyPairSync, type KeyObject, randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { Code, ConnectError } from "@connectrpc/connect";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import {
  AgentService,
  claimChoices,
  formatTicketPublicKey,
  millpondError,
  type ServiceClassWord,
  signTicket,
  type SyncRequest,
  type TicketPayload,
} from "@millpond/api";
import { type FastifyInstance, fastify } from "fastify";

/** Half of the limit of a test, so that a missing report is named before the test times out. */
const reportLimitMs = 120_000;

/** A controller as an agent sees it: Sync, tickets, and outages. Tests set its desired state and read the reports. */
export class FakeController implements AsyncDisposable {
  readonly token = "agent-token";
  readonly reports: SyncRequest[] = [];
  readonly #keys: { readonly privateKey: KeyObject; readonly publicKey: KeyObject };
  readonly #id = randomUUID();
  readonly #allocations = new Map<
    string,
    {
      node: string;
      epoch: number;
      devices: TicketPayload["devices"];
      sizeRevision: number;
      serviceClass: ServiceClassWord;
    }
  >();
  clearedFaults: readonly { readonly uuid: string; readonly fault: bigint }[] = [];
  /** Whether the agents' nodes have been removed from the pool. */
  hasRemovedNodes = false;
  #server: FastifyInstance | undefined;
  #port = 0;
  /** Term of the answers and tickets; a lower one belongs to a controller that is no longer the leader. */
  term = 1;
  #order = 0;
  #revision = 1n;
  #epoch = 0;
  #waiting = new Set<() => void>();
  #reportSeen = new Set<() => void>();

  constructor() {
    this.#keys = generateKeyPairSync("ed25519");
  }

  static async start(): Promise<FakeController> {
    const controller = new FakeController();
    await controller.listen();
    return controller;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async listen(): Promise<void> {
    const server = fastify({ forceCloseConnections: true });
    await server.register(fastifyConnectPlugin, {
      routes: (router) => {
        router.service(AgentService, {
          sync: async (request, context) => {
            if (context.requestHeader.get("authorization") !== `Bearer ${this.token}`) {
              throw new ConnectError("the token is not known", Code.Unauthenticated);
            }
            this.reports.push(request);
            for (const resolve of this.#reportSeen) resolve();
            if (this.hasRemovedNodes) throw millpondError("MILLPOND_E_NODE_REMOVED", "it was removed");
            this.#release();
            if (request.knownRevision === this.#revision) await this.#hold(context.signal);
            return {
              revision: this.#revision,
              allocations: [...this.#allocations].map(
                ([claim, { node, epoch, devices, sizeRevision, serviceClass }]) => ({
                  claim,
                  node,
                  epoch: BigInt(epoch),
                  sizeRevision: BigInt(sizeRevision),
                  serviceClass: claimChoices.serviceClass[serviceClass],
                  devices: devices.map((device) => ({ ...device, memoryBytes: BigInt(device.memoryBytes) })),
                }),
              ),
              term: BigInt(this.term),
              order: BigInt(this.#nextOrder()),
              ticketPublicKey: formatTicketPublicKey(this.#keys.publicKey),
              clearedFaults: this.clearedFaults.map((each) => ({ ...each })),
              controller: this.#id,
              controllerVersion: "0.1.0",
            };
          },
        });
      },
    });
    await server.listen({ host: "127.0.0.1", port: this.#port });
    this.#server = server;
    this.#port = (server.server.address() as AddressInfo).port;
  }

  /** Stops answering; `listen` brings it back at the same address. */
  async goAway(): Promise<void> {
    this.#release();
    await this.#server?.close();
    this.#server = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.goAway();
  }

  /** Grants devices to a claim, and informs the agents. */
  allocate(
    claim: string,
    node: string,
    uuids: readonly string[],
    serviceClass: ServiceClassWord = "guaranteed",
  ): void {
    this.#epoch += 1;
    const devices = uuids.map((uuid) => ({ uuid, memoryBytes: 512 * 2 ** 20, computePercent: 50 }));
    this.#allocations.set(claim, { node, epoch: this.#epoch, devices, sizeRevision: 0, serviceClass });
    this.#change();
  }

  /** Changes the memory of a claim's devices, and informs the agents. */
  resize(claim: string, memoryBytes: number): void {
    const allocation = this.#allocations.get(claim);
    if (allocation === undefined) throw new Error(`claim ${claim} is not allocated`);
    const devices = allocation.devices.map((device) => ({ ...device, memoryBytes }));
    this.#allocations.set(claim, { ...allocation, devices, sizeRevision: Number(this.#revision) });
    this.#change();
  }

  withdraw(claim: string): void {
    this.#allocations.delete(claim);
    this.#change();
  }

  /** A valid ticket of an allocated claim, with the members of `wrong` replaced. */
  ticket(claim: string, wrong: Partial<TicketPayload> & { readonly key?: KeyObject } = {}): string {
    const allocation = this.#allocations.get(claim);
    if (allocation === undefined) throw new Error(`claim ${claim} is not allocated`);
    const { key, ...members } = wrong;
    const { sizeRevision: _told, ...granted } = allocation;
    const issued = Math.floor(Date.now() / 1000);
    const place = { term: this.term, order: this.#nextOrder() };
    return signTicket(
      { session: randomUUID(), claim, ...granted, ...place, issued, expires: issued + 60, ...members },
      key ?? this.#keys.privateKey,
    );
  }

  #nextOrder(): number {
    this.#order += 1;
    return this.#order;
  }

  /** Resolves with the first report that `isWanted` accepts, beginning with the last one received. */
  async report(isWanted: (report: SyncRequest) => boolean): Promise<SyncRequest> {
    for (;;) {
      const last = this.reports.at(-1);
      if (last !== undefined && isWanted(last)) return last;
      const seen = Promise.withResolvers<void>();
      const timer = setTimeout(() => {
        const sessions = last?.sessions.map(({ id }) => id).join() ?? "";
        const what = `${isWanted.toString()}; of ${this.reports.length}, the last had the sessions ${sessions}`;
        seen.reject(new Error(`no report within ${reportLimitMs} ms for ${what}`));
      }, reportLimitMs);
      this.#reportSeen.add(seen.resolve);
      await seen.promise.finally(() => clearTimeout(timer));
      this.#reportSeen.clear();
    }
  }

  #change(): void {
    this.#revision += 1n;
    this.#release();
  }

  #release(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  #hold(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, 2000);
      const release = (): void => {
        clearTimeout(timer);
        resolve();
      };
      signal.addEventListener("abort", release);
      this.#waiting.add(release);
    });
  }
}
