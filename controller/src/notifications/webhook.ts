// SPDX-License-Identifier: Apache-2.0

import { createHmac } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../timers/clock.ts";
import { pause } from "./pause.ts";
import type { WebhookConfig } from "./webhook-config.ts";

/** An event as sent to a receiver. */
export interface Notification {
  /** Increases with every event of a pool. */
  readonly id: number;
  /** ISO 8601, UTC. */
  readonly time: string;
  readonly kind: string;
  readonly subject: string;
  readonly message: string;
  /** Identity of the pool. */
  readonly pool: string;
  /** The tenant of the claim; absent when the event concerns no claim, or its claim is forgotten. */
  readonly tenant?: string;
}

/** The result of a notification: accepted, rejected, or to be retried. */
export type Delivery = "taken" | "refused" | "failed";

const timeoutMs = 10_000;
const firstPauseMs = 1_000;
const longestPauseMs = 300_000;

/** After this time a notification is dropped, so that one receiver does not delay later ones for days. */
export const giveUpAfterMs = 24 * 3_600_000;

/** Statuses after which a later attempt may succeed. */
const passing: ReadonlySet<number> = new Set([408, 425, 429]);

/** Pause before the next attempt after `failures` in a row: doubled each time, and varied, so that receivers recover. */
export function pauseAfter(failures: number, random: number): number {
  const most = Math.min(longestPauseMs, firstPauseMs * 2 ** Math.min(failures - 1, 20));
  return Math.round(most * (0.8 + 0.4 * random));
}

/** `t=…,v1=…`: when it was signed, and the HMAC-SHA256 of that moment, a dot and the body. */
export function signatureOf(secret: string, unixSeconds: number, body: string): string {
  const mac = createHmac("sha256", secret).update(`${unixSeconds}.${body}`).digest("hex");
  return `t=${unixSeconds},v1=${mac}`;
}

/** One receiver. Notifications are sent to it one after the other, each until it is accepted, rejected or too old. */
export class Webhook {
  readonly config: WebhookConfig;
  readonly #log: Logger;
  readonly #clock: Clock;
  #failures = 0;

  constructor(config: WebhookConfig, { log, clock }: { readonly log: Logger; readonly clock: Clock }) {
    this.config = config;
    this.#log = log;
    this.#clock = clock;
  }

  wants({ kind, tenant }: Pick<Notification, "kind" | "tenant">): boolean {
    const { events, tenants } = this.config;
    const isKind = events.some((each) =>
      each.endsWith("*") ? kind.startsWith(each.slice(0, -1)) : kind === each,
    );
    const isTenant = tenant !== undefined && tenants.includes(tenant);
    return (events.length === 0 || isKind) && (tenants.length === 0 || isTenant);
  }

  /** Resolves with true when the notification needs no more attempts, and with false when the signal aborts. */
  async deliver(notification: Notification, signal: AbortSignal): Promise<boolean> {
    for (;;) {
      const outcome = await this.#attempt(notification, signal);
      if (signal.aborted) return false;
      if (outcome !== "failed") return true;
      if (this.#clock.unixMs() - Date.parse(notification.time) > giveUpAfterMs) {
        this.#log.error(
          { webhook: this.config.name, event: notification.id },
          "a notification was dropped after repeated failures",
        );
        return true;
      }
      await pause(this.#clock, pauseAfter(this.#failures, Math.random()), signal);
      if (signal.aborted) return false;
    }
  }

  async #attempt(notification: Notification, signal: AbortSignal): Promise<Delivery> {
    const { name, url, secret, format } = this.config;
    const body = JSON.stringify(
      format === "text"
        ? { text: `${notification.kind} ${notification.subject}: ${notification.message}` }
        : notification,
    );
    const headers: Record<string, string> = {
      "content-type": "application/json",
      "user-agent": "millpond-webhook",
      "millpond-event": String(notification.id),
    };
    if (secret !== "") {
      headers["millpond-signature"] = signatureOf(secret, Math.floor(this.#clock.unixMs() / 1000), body);
    }
    let why: string;
    try {
      const answer = await fetch(url, {
        method: "POST",
        body,
        headers,
        // Redirects are not followed: a receiver must not choose another address for this host to call.
        redirect: "manual",
        signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
      });
      // The body of the answer is not read.
      await answer.body?.cancel();
      if (answer.ok) {
        if (this.#failures > 0) this.#log.info({ webhook: name }, "a webhook accepts notifications again");
        this.#failures = 0;
        return "taken";
      }
      why = `it answers ${answer.status}`;
      if (answer.status < 500 && !passing.has(answer.status)) {
        this.#log.warn({ webhook: name, event: notification.id, why }, "a webhook refuses a notification");
        this.#failures = 0;
        return "refused";
      }
    } catch (error) {
      why = error instanceof Error ? messageOf(error) : String(error);
    }
    this.#failures += 1;
    if (this.#failures === 1 && !signal.aborted) {
      this.#log.warn(
        { webhook: name, event: notification.id, why },
        "a webhook does not accept notifications",
      );
    }
    return "failed";
  }
}

/** The message `fetch failed` does not name the cause. */
function messageOf(error: Error): string {
  return error.cause instanceof Error ? error.cause.message : error.message;
}
