// SPDX-License-Identifier: Apache-2.0

// Sends events to the receivers that the administrator names. The queue is the events in the store, of which only a
// batch is in memory. Each receiver has its own position in the queue, so a slow one does not delay the others.

import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type MayKnow, mayKnowAll, renderReason } from "@millpond/api";
import type { Logger } from "pino";
import type { EventRecord } from "../domain/records.ts";
import type { LeaderElector } from "../ha/leader-election.ts";
import type { Store } from "../state/store.ts";
import type { Clock } from "../timers/clock.ts";
import { pause } from "./pause.ts";
import { type Notification, Webhook } from "./webhook.ts";
import type { WebhookConfig } from "./webhook-config.ts";

/** How often new events are looked for. */
const lookEveryMs = 1_000;

/** The most events read at once. */
const batch = 100;

export interface WebhooksOptions {
  readonly configs: readonly WebhookConfig[];
  readonly elector: LeaderElector;
  readonly store: Store;
  /** Where the positions of the receivers are stored. */
  readonly stateDirectory: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export class Webhooks implements AsyncDisposable {
  readonly #options: WebhooksOptions;
  readonly #stop = new AbortController();
  readonly #work: readonly Promise<void>[];

  private constructor(options: WebhooksOptions, places: readonly (number | undefined)[]) {
    this.#options = options;
    this.#work = options.configs.map((config, index) =>
      this.#run(new Webhook(config, options), places[index]),
    );
  }

  /** Resolves when the position of each receiver is known: every later event counts. */
  static async start(options: WebhooksOptions): Promise<Webhooks> {
    const { configs, elector } = options;
    const places = elector.isLeading
      ? await Promise.all(configs.map(({ name }) => firstPlace(options, name)))
      : [];
    return new Webhooks(options, places);
  }

  async #run(webhook: Webhook, place: number | undefined): Promise<void> {
    const { signal } = this.#stop;
    const { elector, log, clock } = this.#options;
    let after = place;
    let hasFailed = false;
    while (!signal.aborted) {
      try {
        if (elector.isLeading) {
          after ??= await firstPlace(this.#options, webhook.config.name);
          after = await this.#send(webhook, after);
        } else {
          // Another controller sends now. If this one leads again, it reads the positions again.
          after = undefined;
        }
        hasFailed = false;
      } catch (error) {
        // The store is unreachable, or the disk is full; reported once.
        if (!hasFailed)
          log.error({ err: error, webhook: webhook.config.name }, "events cannot be sent at present");
        hasFailed = true;
      }
      await pause(clock, lookEveryMs, signal);
    }
  }

  /** Sends newer events; returns the new position. */
  async #send(webhook: Webhook, from: number): Promise<number> {
    const { store, elector } = this.#options;
    let after = from;
    for (;;) {
      const events = await store.listEvents({ after, subject: "", limit: batch, end: "oldest" });
      for (const event of events) {
        const notification = this.#notificationOf(event, webhook);
        if (webhook.wants(notification) && !(await webhook.deliver(notification, this.#stop.signal))) {
          return after;
        }
        after = event.id;
        if (webhook.wants(notification)) this.#keepPlace(webhook.config.name, after);
        if (!elector.isLeading) return after;
      }
      if (events.length < batch) break;
    }
    if (after > from) this.#keepPlace(webhook.config.name, after);
    return after;
  }

  #notificationOf({ id, at, kind, subject, detail }: EventRecord, { config }: Webhook): Notification {
    const { ledger } = this.#options.elector.pool;
    const name = subject.startsWith("claim/") ? subject.slice("claim/".length) : undefined;
    const tenant = name === undefined ? undefined : ledger.claims.get(name)?.tenant;
    const { tenants } = config;
    const mayKnow: MayKnow =
      tenants.length === 0 ? mayKnowAll : ({ tenant: theirs }) => tenants.includes(theirs);
    return {
      id,
      time: new Date(at * 1000).toISOString(),
      kind,
      subject,
      message: renderReason(detail, mayKnow),
      pool: ledger.identity,
      ...(tenant !== undefined && { tenant }),
    };
  }

  #keepPlace(name: string, place: number): void {
    mkdirSync(join(this.#options.stateDirectory, "webhooks"), { recursive: true, mode: 0o700 });
    const file = placeFile(this.#options, name);
    writeFileSync(`${file}.new`, `${place}\n`, { mode: 0o600 });
    renameSync(`${file}.new`, file);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#work);
  }
}

/**
 * Position at which a receiver resumes. With a store shared by several controllers it is the newest event, because only the
 * previous leader knows which events were sent.
 */
async function firstPlace(options: WebhooksOptions, name: string): Promise<number> {
  const { store } = options;
  const isOwn = !Number.isFinite(store.leaseMs);
  const kept = isOwn ? readPlace(placeFile(options, name)) : undefined;
  if (kept !== undefined) return kept;
  const [newest] = await store.listEvents({ after: 0, subject: "", limit: 1, end: "newest" });
  return newest?.id ?? 0;
}

function readPlace(file: string): number | undefined {
  try {
    const place = Number(readFileSync(file, "utf8"));
    return Number.isSafeInteger(place) && place >= 0 ? place : undefined;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

function placeFile({ stateDirectory }: WebhooksOptions, name: string): string {
  return join(stateDirectory, "webhooks", name);
}
