// SPDX-License-Identifier: Apache-2.0

// Requirements for a host to become a node. Each check resolves with a text about its result, and throws when it fails.

import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { createServer } from "node:net";
import { countOf, errorCodeOf, millpondError } from "@millpond/api";
import { probeDriver } from "@millpond/agent";
import { explainTlsFailure, splitAddresses } from "@millpond/platform";
import { connect } from "../connection/connection.ts";
import { findNativeFiles } from "../host/native-files.ts";
import { resolveDriver } from "./node-defaults.ts";

const probeTimeoutMs = 60_000;
const dateTimeoutMs = 10_000;
/** The lifetime of a ticket, one minute, limits how far clocks may differ. */
const clockLimitSeconds = 20;

/** @throws MILLPOND_E_DRIVER, MILLPOND_E_NOT_INSTALLED */
export async function checkDrivers(drivers: string, environment: NodeJS.ProcessEnv): Promise<string> {
  const native = findNativeFiles(environment);
  const found: string[] = [];
  for (const each of drivers.split(",")) {
    const driver = await resolveDriver(each, native);
    try {
      const { devices } = await probeDriver({ worker: native.worker, driver, timeoutMs: probeTimeoutMs });
      found.push(...devices.map(({ name }) => name));
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw millpondError("MILLPOND_E_DRIVER", `the driver ${driver} cannot be used: ${why}`, { cause });
    }
  }
  return `${countOf(found.length, "GPU")} to offer: ${found.join(", ")}`;
}

/**
 * @param isOurs whether the agent is already running and may hold the port
 * @throws MILLPOND_E_ADDRESS_IN_USE
 */
export async function checkPort(
  listen: string | undefined,
  controller: string,
  isOurs: boolean,
): Promise<string> {
  const isLocal = splitAddresses(controller).every((address) =>
    /^https?:\/\/(localhost|127\.[\d.]+|\[::1\])([:/]|$)/.test(address),
  );
  const asked = listen ?? (isLocal ? "127.0.0.1:0" : "0.0.0.0:7171");
  const match = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(asked);
  const port = Number(match?.[3] ?? 0);
  if (isOurs || port === 0) return `the agent will serve at ${asked}`;
  const server = createServer();
  try {
    const listening = once(server, "listening");
    server.listen({ host: match?.[1] ?? match?.[2], port });
    await listening;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_ADDRESS_IN_USE", `the agent cannot serve at ${asked}: ${why}`, {
      remedy: "Give another address with --listen.",
      cause,
    });
  } finally {
    server.close();
  }
  return `${asked} is free for the agent`;
}

/** @throws MILLPOND_E_INVALID when the clocks of the two machines differ too much for tickets */
export async function checkClock(controller: string, ca: string | undefined): Promise<string> {
  const [address = ""] = splitAddresses(controller);
  const before = Date.now();
  const date = await readDate(new URL("/healthz", address), ca);
  // The header's date is truncated to the second.
  const difference = Math.round((date - (before + Date.now()) / 2) / 1000);
  if (Number.isNaN(difference)) return "the clock of the controller is not known";
  if (Math.abs(difference) > clockLimitSeconds) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the clock of the controller is ${Math.abs(difference)} s ${difference > 0 ? "ahead of" : "behind"} this machine's`,
      { remedy: "Synchronize the clocks of both machines with NTP: tickets are valid for a minute." },
    );
  }
  return `its clock and this machine's agree within ${Math.abs(difference) + 1} s`;
}

function readDate(url: URL, ca: string | undefined): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const options = { timeout: dateTimeoutMs, ...(ca === undefined ? {} : { ca }) };
  const call = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, options, (response) => {
    response.resume();
    resolve(Date.parse(response.headers.date ?? ""));
  });
  call.once("timeout", () => call.destroy(new Error(`no answer within ${dateTimeoutMs / 1000} s`)));
  call.once("error", (cause) => {
    const unreachable = millpondError(
      "MILLPOND_E_UNREACHABLE",
      `there is no controller at ${url.origin}: ${cause.message}`,
      { cause },
    );
    explainTlsFailure(cause, url.origin).then((distrusted) => reject(distrusted ?? unreachable), reject);
  });
  call.end();
  return promise;
}

/**
 * Checks that the controller accepts the token, and that it is an agent's: agents must not list queues.
 *
 * @throws MILLPOND_E_INVALID for a token of another role, and the controller's error for an unknown token
 */
export async function checkAgentToken(
  controller: string,
  { token, ca }: { readonly token: string; readonly ca: string | undefined },
): Promise<string> {
  const { queues } = connect({ controller, token, ca, source: "the command line" });
  try {
    await queues.listQueues({});
  } catch (error) {
    if (errorCodeOf(error) === "MILLPOND_E_FORBIDDEN") return "the controller knows the token as an agent's";
    throw error;
  }
  throw millpondError("MILLPOND_E_INVALID", "the token is good, but not an agent's: it may see the queues", {
    remedy: "Make one with `millpond token create <node> --role agent`.",
  });
}
