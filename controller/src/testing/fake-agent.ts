// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import {
  AgentService,
  type FindKeys,
  AllocationActivitySchema,
  DeviceFiguresSchema,
  DeviceHealth,
  DeviceReportSchema,
  EndedSessionSchema,
  millpondError,
  parseTicketPublicKey,
  ticketKeyId,
  SessionReportSchema,
  SessionState,
  type SyncRequestSchema,
  type SyncResponse,
  verifyTicket,
} from "@millpond/api";
import type { Clock } from "../timers/clock.ts";
import { makeTransport } from "./transport.ts";
import { within } from "./until.ts";

/** Pause between two calls that fail. */
const pauseMs = 100;

export interface FakeAgentOptions {
  /** Several controllers: separated by commas. */
  readonly url: string;
  readonly token: string;
  readonly clock: Clock;
  readonly node: string;
  readonly devices: readonly MessageInitShape<typeof DeviceReportSchema>[];
  /** What it reports about its host, where that matters. */
  readonly host?: Pick<MessageInitShape<typeof SyncRequestSchema>, "agentVersion" | "hostname" | "labels">;
  /** Accepts tickets whatever their times, from controllers whose clocks are hours apart. Default false. */
  readonly isTimeless?: boolean;
  /** The node's previous agent, which was killed: this one finds its records. */
  readonly before?: FakeAgent | undefined;
}

interface FakeSession {
  readonly id: string;
  readonly claim: string;
  readonly epoch: number;
  readonly issued: number;
  readonly term: number;
  readonly order: number;
  readonly ticket: string;
  /** The limits of its worker. */
  devices: readonly FakeSize[];
  /** Bytes in use on each device: its worker refuses a lower limit. */
  memoryUsed: bigint;
  /** Share of each device's time that the session uses, percent; undefined: the agent does not know. */
  computeUsed: number | undefined;
  /** Calls made by its program. */
  commands: bigint;
  /** The worker's answer to the last change of its sizes. */
  sizeAnswer: { readonly revision: bigint; readonly refusal: string };
  hasClient: boolean;
}

interface FakeSize {
  readonly uuid: string;
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

/** A device as an agent reports it. */
export function fakeDevice(index: number, memoryBytes: bigint): MessageInitShape<typeof DeviceReportSchema> {
  return {
    index,
    uuid: `GPU-${index}`,
    name: "Software GPU",
    kind: "softgpu",
    memoryBytes,
    pciBusId: `0000:0${index}:00.0`,
    computeCapability: "7.5",
    multiprocessors: 16,
    cudaVersion: 13_000,
    health: DeviceHealth.HEALTHY,
  };
}

/** The number of keys in an answer that are accepted. */
function findKeysOf({ ticketKeys }: SyncResponse, nowSeconds: number): FindKeys {
  const keys = ticketKeys
    .filter(({ acceptedUntil }) => acceptedUntil === 0n || BigInt(nowSeconds) < acceptedUntil)
    .map(({ publicKey }) => parseTicketPublicKey(publicKey));
  return (id) => keys.filter((key) => ticketKeyId(key) === id);
}

/** An agent without workers: it speaks the real protocol and follows its rules. */
export class FakeAgent implements AsyncDisposable {
  readonly node: string;
  readonly sessions = new Map<string, FakeSession>();
  /** Ended sessions that no answer has acknowledged. */
  readonly ended = new Map<string, FakeSession>();
  /** How long the sessions of each allocation have made calls, in milliseconds, by epoch. */
  readonly activity = new Map<number, number>();
  devices: readonly MessageInitShape<typeof DeviceReportSchema>[];
  figures: readonly MessageInitShape<typeof DeviceFiguresSchema>[] = [];
  /** The newest answer. */
  desired: SyncResponse | undefined;
  readonly #options: FakeAgentOptions;
  readonly #client: Client<typeof AgentService>;
  readonly #stop = new AbortController();
  readonly #run = randomUUID();
  #sequence = 0n;
  #obeyed = 0n;
  #loop: Promise<void> = Promise.resolve();
  /** Waits for an answer. */
  #waiting: PromiseWithResolvers<void>[] = [];
  #hasEnded = false;
  /** The call that reported these devices to the controller. */
  #described: { readonly by: bigint; readonly devices: FakeAgent["devices"] } | undefined;
  /** Whether it ends sessions whose allocation is gone. */
  isObedient = true;
  /** Whether losing the controller is acceptable. */
  mayLoseController = false;
  /** Whether it then calls again. */
  isPersistent = false;
  /** Answers of controllers that were no longer the leader. */
  refused = 0;
  /** The highest term that an agent of the node has seen. */
  #term = 0n;
  #failure: unknown;

  constructor(options: FakeAgentOptions) {
    this.#options = options;
    this.node = options.node;
    this.devices = options.devices;
    const { before } = options;
    if (before !== undefined) {
      this.#term = before.#term;
      this.#adopt(before);
    }
    this.#client = createClient(
      AgentService,
      makeTransport(options.url, options.token, { isRepeatable: true }),
    );
  }

  /** Begins to call; resolves when the first call has been answered. */
  async start(): Promise<this> {
    await this.sync();
    this.#loop = this.#callForEver();
    return this;
  }

  /** Begins to call, whether or not any controller answers. */
  begin(): this {
    this.isPersistent = true;
    this.#loop = this.#callForEver();
    return this;
  }

  /** Calls once, now; if that fails, the next call repeats the report. */
  async tell(): Promise<void> {
    await Promise.allSettled([this.sync()]);
  }

  /** Calls once, now. */
  async sync({ isLast = false }: { readonly isLast?: boolean } = {}): Promise<void> {
    this.#sequence += 1n;
    const sequence = this.#sequence;
    const ended = [...this.ended.values()];
    const { devices } = this;
    const describedBy = this.#described?.devices === devices ? this.#described.by : 0n;
    const answer = await this.#client.sync(
      {
        node: this.node,
        run: this.#run,
        ...(describedBy === 0n
          ? { ...describe(this.node, devices), ...this.#options.host }
          : { describedBy }),
        sequence,
        knownRevision: this.desired?.revision ?? 0n,
        knownTerm: this.desired?.term ?? 0n,
        warmWorkers: 2,
        ticketKeyIds: this.desired?.ticketKeys.map(({ id }) => id) ?? [],
        leaving: isLast,
        figures: this.figures.map((each) => create(DeviceFiguresSchema, each)),
        sessions: [...this.sessions.values()].map((session) =>
          create(SessionReportSchema, {
            id: session.id,
            claim: session.claim,
            epoch: BigInt(session.epoch),
            state: session.hasClient ? SessionState.CONNECTED : SessionState.ASSIGNED,
            startedAt: BigInt(session.issued),
            transport: session.hasClient ? "shm" : "",
            devices: session.devices.map(({ uuid, memoryBytes, computePercent }) => ({
              uuid,
              memoryUsedBytes: session.memoryUsed,
              memoryLimitBytes: memoryBytes,
              computePercent,
              ...(session.computeUsed === undefined ? {} : { computeUsedPercent: session.computeUsed }),
            })),
            sizeRevision: session.sizeAnswer.revision,
            sizeRefusal: session.sizeAnswer.refusal,
            commands: session.commands,
            launches: 2n,
            ticket: describedBy === 0n ? session.ticket : "",
          }),
        ),
        endedSessions: ended.map(({ id, claim, epoch, hasClient }) =>
          create(EndedSessionSchema, { id, claim, epoch: BigInt(epoch), hadClient: hasClient }),
        ),
        activity: [...this.activity].map(([epoch, activeMs]) =>
          create(AllocationActivitySchema, { epoch: BigInt(epoch), activeMilliseconds: BigInt(activeMs) }),
        ),
      },
      { signal: this.#stop.signal },
    );
    this.#described = answer.describedBy === 0n ? undefined : { by: answer.describedBy, devices };
    if (describedBy !== 0n && this.#described === undefined) {
      await this.sync();
      return;
    }
    for (const { id } of ended) {
      this.ended.delete(id);
    }
    // Answers may overtake each other: an answer to an earlier call than the last one obeyed is stale.
    if (sequence > this.#obeyed) {
      this.#obeyed = sequence;
      this.#obey(answer);
    }
  }

  /** Calls until the report has been applied and its consequences are visible. */
  async settle(): Promise<void> {
    await this.sync();
    await this.sync();
  }

  /** Opens a session as OpenSession would, and reports it when its client has connected. */
  async openSession(ticket: string): Promise<string> {
    const id = this.takeTicket(ticket);
    this.connectClient(id);
    await this.sync();
    return id;
  }

  /** Opens a session without reporting it. */
  takeTicket(ticket: string): string {
    const { desired } = this;
    if (desired === undefined) {
      throw millpondError("MILLPOND_E_NODE_NOT_READY", "the agent has had no answer yet");
    }
    const nowSeconds = this.#options.isTimeless
      ? issuedAt(ticket)
      : Math.floor(this.#options.clock.unixMs() / 1000);
    const payload = verifyTicket(ticket, findKeysOf(desired, nowSeconds), { nowSeconds });
    if (payload.node !== this.node || this.sessions.has(payload.session)) {
      throw new Error("the ticket is for another node, or used");
    }
    const { session: id, claim, epoch, issued, term, order, devices } = payload;
    const isListed = desired.allocations.some((each) => each.claim === claim && each.epoch === BigInt(epoch));
    const isNewer =
      BigInt(term) > desired.term || (BigInt(term) === desired.term && BigInt(order) > desired.order);
    if (!isListed && !isNewer) {
      throw millpondError("MILLPOND_E_TICKET_STALE", `the allocation of claim ${claim} was taken away`);
    }
    this.sessions.set(id, {
      id,
      claim,
      epoch,
      issued,
      term,
      order,
      ticket,
      devices: devices.map((each) => ({ ...each, memoryBytes: BigInt(each.memoryBytes) })),
      memoryUsed: 1_048_576n,
      computeUsed: undefined,
      commands: 10n,
      sizeAnswer: { revision: 0n, refusal: "" },
      hasClient: false,
    });
    this.#resizeSessions(desired);
    return id;
  }

  /** The client of a session connects; the agent does not report it yet. */
  connectClient(id: string): void {
    const session = this.sessions.get(id);
    if (session === undefined) {
      throw new Error(`there is no session ${id}`);
    }
    session.hasClient = true;
  }

  /** The program of a session makes calls for this long; the agent does not report it yet. */
  work(id: string, milliseconds: number): void {
    const session = this.sessions.get(id);
    if (session === undefined) {
      throw new Error(`there is no session ${id}`);
    }
    session.commands += 1n;
    this.activity.set(session.epoch, (this.activity.get(session.epoch) ?? 0) + milliseconds);
  }

  /** A session ends; the agent does not report it yet. */
  endSession(id: string): void {
    const session = this.sessions.get(id);
    if (session !== undefined) {
      this.sessions.delete(id);
      this.ended.set(id, session);
    }
  }

  async closeSession(id: string): Promise<void> {
    this.endSession(id);
    await this.sync();
  }

  /**
   * Waits for an answer that meets a condition.
   *
   * @throws Error When it has stopped calling, or no such answer arrives in time.
   */
  async until(isMet: (desired: SyncResponse) => boolean): Promise<SyncResponse> {
    return await within(this.#answer(isMet), () => `${isMet.toString()}: ${this.#describe()}`);
  }

  async #answer(isMet: (desired: SyncResponse) => boolean): Promise<SyncResponse> {
    while (this.desired === undefined || !isMet(this.desired)) {
      if (this.#hasEnded) {
        throw new Error(`the agent calls no more: ${this.#describe()}`, { cause: this.#failure });
      }
      const next = Promise.withResolvers<void>();
      this.#waiting.push(next);
      await next.promise;
    }
    return this.desired;
  }

  #describe(): string {
    const { desired } = this;
    const answer =
      desired === undefined
        ? "no answer yet"
        : `the last answer: term ${desired.term}, revision ${desired.revision}, claims ${desired.allocations.map(({ claim }) => claim).join() || "none"}`;
    return `${this.node}, ${answer}, ${this.refused} refused, last failure: ${String(this.#failure)}`;
  }

  /** Stops like a killed process: without notifying the controller. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    if (this.#failure !== undefined && !this.mayLoseController) {
      throw this.#failure;
    }
  }

  #adopt({ sessions, ended, activity }: Pick<FakeAgent, "sessions" | "ended" | "activity">): void {
    for (const [epoch, activeMs] of activity) {
      this.activity.set(epoch, activeMs);
    }
    for (const [id, session] of sessions) {
      this.sessions.set(id, session);
    }
    for (const [id, session] of ended) {
      this.ended.set(id, session);
    }
  }

  async #callForEver(): Promise<void> {
    while (!this.#stop.signal.aborted && this.#failure === undefined) {
      try {
        await this.sync();
      } catch (error) {
        if (this.isPersistent) {
          await delay(pauseMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
        } else if (!this.#stop.signal.aborted) {
          this.#failure = error;
        }
      }
    }
    this.#hasEnded = true;
    this.#wake();
  }

  #wake(): void {
    for (const { resolve } of this.#waiting.splice(0)) {
      resolve();
    }
  }

  #obey(answer: SyncResponse): void {
    if (answer.term < this.#term) {
      this.refused += 1;
      return;
    }
    this.#term = answer.term;
    this.desired = answer;
    for (const { id, claim, epoch, term, order } of this.sessions.values()) {
      const isListed = answer.allocations.some(
        (each) => each.claim === claim && each.epoch === BigInt(epoch),
      );
      const isOlder = BigInt(term) < answer.term || BigInt(order) < answer.order;
      if (this.isObedient && !isListed && isOlder) {
        this.endSession(id);
      }
    }
    if (this.isObedient) {
      this.#resizeSessions(answer);
    }
    for (const { uuid, fault } of answer.clearedFaults) {
      this.devices = this.devices.map((device) =>
        device.uuid === uuid && device.fault === fault
          ? { ...device, health: DeviceHealth.HEALTHY, healthReason: "", fault: 0n }
          : device,
      );
    }
    this.#wake();
  }

  /** Sends new sizes to the workers, which refuse less than is in use. */
  #resizeSessions({ allocations, term, order }: SyncResponse): void {
    for (const session of this.sessions.values()) {
      const listed = allocations.find(
        (each) => each.claim === session.claim && each.epoch === BigInt(session.epoch),
      );
      const isOlder = BigInt(session.term) < term || BigInt(session.order) < order;
      if (listed === undefined || !isOlder || listed.sizeRevision <= session.sizeAnswer.revision) {
        continue;
      }
      const { sizeRevision: revision, devices } = listed;
      const fits = devices.every(({ memoryBytes }) => memoryBytes >= session.memoryUsed);
      session.sizeAnswer = { revision, refusal: fits ? "" : `${session.memoryUsed} bytes are in use` };
      if (fits) {
        session.devices = devices.map(({ uuid, memoryBytes, computePercent }) => ({
          uuid,
          memoryBytes,
          computePercent,
        }));
      }
    }
  }
}

/** The validity of a ticket, Unix seconds. */
function issuedAt(ticket: string): number {
  const payload = Buffer.from(ticket.split(".")[1] ?? "", "base64url").toString("utf8");
  return (JSON.parse(payload) as { readonly issued: number }).issued;
}

function describe(node: string, devices: FakeAgent["devices"]): MessageInitShape<typeof SyncRequestSchema> {
  return {
    agentUrl: `http://127.0.0.1:7171/${node}`,
    agentVersion: "0.1.0",
    hostname: "host",
    bootId: "boot",
    devices: devices.map((device) => create(DeviceReportSchema, device)),
  };
}
