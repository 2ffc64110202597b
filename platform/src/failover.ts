// SPDX-License-Identifier: Apache-2.0

// Presents several controllers that share a state as one.

import type { DescMethod } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import { ConnectError } from "@connectrpc/connect";
import { errorCodeOf, leaderHeader } from "@millpond/api";
import { notConnectedCode } from "./outgoing/prompt-agent.ts";

export interface FailoverOptions {
  /** Base URLs, at least one. */
  readonly addresses: readonly string[];
  readonly makeTransport: (address: string) => Transport;
  /**
   * How long to keep asking while a controller answers that there is no leader. Default 0: each controller is asked
   * once.
   */
  readonly patienceMs?: number;
  /** Whether to retry a call that may have been received. Default: never. */
  readonly isRepeatable?: (method: DescMethod) => boolean;
  /** Timeout per controller for an idempotent call without a limit of its own. Default: none. */
  readonly answerMs?: number;
}

/** How long an unresponsive controller is skipped, unless no other is left. */
const desertedMs = 3_000;

/** Pause between two rounds over all controllers. */
const pauseMs = 200;

/** The system's error codes for a connection that was never established. */
const neverConnected = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  notConnectedCode,
]);

/** Reads a list of base URLs, separated by commas, without trailing slashes. */
export function splitAddresses(text: string): string[] {
  return text
    .split(",")
    .map((address) => address.trim().replace(/\/+$/, ""))
    .filter((address) => address !== "");
}

/**
 * Sends each call to the controller that answered last. If that one is not the leader, the call goes to the leader; if
 * it does not respond, to the next controller. A call that may have been received is not retried, but the following
 * call goes to another controller.
 */
export function makeFailoverTransport(options: FailoverOptions): Transport {
  const { addresses, patienceMs = 0, isRepeatable = () => false, answerMs } = options;
  const transports = new Map<string, Transport>();
  let current = addresses[0] ?? "";

  const transportOf = (address: string): Transport => {
    let transport = transports.get(address);
    if (transport === undefined) {
      transport = options.makeTransport(address);
      transports.set(address, transport);
    }
    return transport;
  };

  /** Where to send the call after a controller has failed. */
  const nextAfter = (address: string, error: unknown, isDeserted: (address: string) => boolean): string => {
    const leader = error instanceof ConnectError ? (error.metadata.get(leaderHeader) ?? "") : "";
    // A redirect from TLS to plain HTTP would expose the call to eavesdroppers.
    const isSafe = leader.startsWith("https:") || address.startsWith("http:");
    if (/^https?:\/\//.test(leader) && isSafe && leader !== address && !isDeserted(leader)) {
      return leader;
    }
    const position = addresses.indexOf(address) + 1;
    const others = [...addresses.slice(position), ...addresses.slice(0, position)];
    return others.find((each) => !isDeserted(each)) ?? others[0] ?? address;
  };

  const askAll = async <T>(
    isAgain: boolean,
    signal: AbortSignal | undefined,
    ask: (transport: Transport) => Promise<T>,
  ) => {
    const endMs = performance.now() + patienceMs;
    const desertedUntilMs = new Map<string, number>();
    const isDeserted = (address: string): boolean => performance.now() < (desertedUntilMs.get(address) ?? 0);
    let refusal: unknown;
    for (let asked = 1; ; asked += 1) {
      const address = current;
      try {
        return await ask(transportOf(address));
      } catch (error) {
        if (signal?.aborted === true && !isTimeout(signal.reason)) {
          // The caller has cancelled the call, which says nothing about the controller.
          throw error;
        }
        const isElsewhere = errorCodeOf(error) === "MILLPOND_E_NOT_LEADER";
        if (wasNeverHeard(error)) {
          desertedUntilMs.set(address, performance.now() + desertedMs);
        }
        if (current === address && (isElsewhere || isAway(error))) {
          current = nextAfter(address, error, isDeserted);
        }
        refusal = isElsewhere ? error : (refusal ?? error);
        const mayRepeat = isElsewhere || wasNeverHeard(error) || (isAgain && isAway(error));
        if (!mayRepeat || signal?.aborted === true) {
          throw error;
        }
        // The leader may not be among the addresses; it is then tried as an additional one.
        const hasFollower = errorCodeOf(refusal) === "MILLPOND_E_NOT_LEADER";
        if (asked >= addresses.length + Number(hasFollower)) {
          if (!hasFollower || performance.now() > endMs) {
            throw refusal;
          }
          await new Promise((resolve) => setTimeout(resolve, pauseMs));
        }
      }
    }
  };

  return {
    unary: (method, signal, timeoutMs, header, input, contextValues) => {
      const isAgain = isRepeatable(method);
      const limitMs = timeoutMs ?? (isAgain ? answerMs : undefined);
      return askAll(isAgain, signal, (transport) =>
        transport.unary(method, signal, limitMs, header, input, contextValues),
      );
    },
    stream: (method, signal, timeoutMs, header, input, contextValues) =>
      transportOf(current).stream(method, signal, timeoutMs, header, input, contextValues),
  };
}

function isTimeout(reason: unknown): boolean {
  return reason instanceof Error && reason.name === "TimeoutError";
}

/** Whether the controller did not respond, or cannot serve calls at present. */
function isAway(error: unknown): boolean {
  const code = errorCodeOf(error);
  return (
    code === undefined ||
    code === "MILLPOND_E_UNREACHABLE" ||
    code === "MILLPOND_E_SHUTTING_DOWN" ||
    code === "MILLPOND_E_STORE_UNREACHABLE"
  );
}

function wasNeverHeard(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if ("code" in cause && typeof cause.code === "string" && neverConnected.has(cause.code)) {
      return true;
    }
  }
  return false;
}
