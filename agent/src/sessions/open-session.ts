// SPDX-License-Identifier: Apache-2.0

import { randomBytes } from "node:crypto";
import { ConnectError } from "@connectrpc/connect";
import { millpondError, type OpenSessionRequest, quote, type TicketPayload } from "@millpond/api";
import type { Logger } from "pino";
import type { Admission } from "./admission.ts";
import type { DiscoveredDevice } from "../devices/devices.ts";
import { errorText } from "../process/error-text.ts";
import { bootId } from "../process/process-identity.ts";
import type { SessionPlaces } from "./session-places.ts";
import type { WorkerPool } from "../workers/worker-pool.ts";
import { WorkerRefusedError } from "../workers/worker.ts";

export interface SessionOpener {
  readonly admission: Admission;
  readonly pool: WorkerPool;
  readonly places: SessionPlaces;
  readonly devices: readonly DiscoveredDevice[];
  /** Why a device must not be used; undefined: it may be used. */
  readonly illnessOf: (uuid: string) => string | undefined;
  /** Address at which the workers' TCP ports are reached. */
  readonly tcpHost: string;
  /** Whether clients and workers encrypt their TCP traffic. */
  readonly isEncrypted: boolean;
  readonly log: Logger;
}

/** Addresses at which the client reaches its worker. */
export interface OpenedSession {
  readonly session: string;
  readonly unixPath: string;
  readonly tcpHost: string;
  readonly tcpPort: number;
  readonly bootId: string;
  /** Secret with which the client and its worker encrypt their TCP traffic; empty: they do not encrypt. */
  readonly linkSecret: string;
  /** User id of the worker. */
  readonly workerUser: number;
}

/** Serves NodeService/OpenSession. `signal`: aborted when the caller has gone. Throws errors with MILLPOND_E_… codes. */
export async function openSession(
  opener: SessionOpener,
  request: OpenSessionRequest,
  signal?: AbortSignal,
): Promise<OpenedSession> {
  const transport = parseTransport(request.transport);
  const now = Math.floor(Date.now() / 1000);
  const payload = opener.admission.admit(request.ticket, now);
  assertServable(opener, payload);
  using _place = await takePlace(opener, payload, signal);
  const { session, claim, epoch, term, order, issued, serviceClass = "guaranteed" } = payload;
  const devices = payload.devices.map((device) => ({ ...device, serviceClass }));
  const { parkAfterSeconds = 0, sizeRevision = 0, priority = 0 } = payload;
  const linkSecret = opener.isEncrypted ? randomBytes(32).toString("hex") : "";
  try {
    const worker = await opener.pool.open(
      { session, claim, epoch, term, order, issued, startedAt: now, ticket: request.ticket, devices },
      request.ticket,
      {
        expires: payload.expires,
        linkSecret,
        parkAfterMs: parkAfterSeconds * 1000,
        priority,
        // A ticket of an earlier controller names no tenant: its claim is treated as a tenant of its own.
        tenant: payload.tenant ?? `claim ${claim} ${epoch}`,
        assertAllowed: () => opener.admission.assertGranted(payload),
        sizes: () => opener.admission.sizesOf(payload) ?? { revision: sizeRevision, devices },
      },
    );
    if (transport === "tcp" && worker.tcpPort === 0) {
      opener.pool.close(worker, "its client asked for TCP, which this worker does not offer");
      throw millpondError(
        "MILLPOND_E_TRANSPORT_UNAVAILABLE",
        "the workers of this node do not listen on TCP",
      );
    }
    opener.log.info({ session, claim, worker: worker.directory.id }, "opened a session");
    return {
      session,
      unixPath: transport === "tcp" ? "" : worker.directory.dataPath,
      tcpHost: opener.tcpHost,
      tcpPort: transport === "shm" ? 0 : worker.tcpPort,
      bootId: bootId(),
      linkSecret: transport === "shm" ? "" : linkSecret,
      workerUser: worker.user ?? process.geteuid?.() ?? 0,
    };
  } catch (cause) {
    if (cause instanceof ConnectError) throw cause;
    if (cause instanceof WorkerRefusedError && cause.isFull) {
      throw millpondError(
        "MILLPOND_E_TOO_MANY_SESSIONS",
        `the claim ${claim} has no memory for another session: ${cause.message}`,
        { cause },
      );
    }
    throw millpondError(
      "MILLPOND_E_NO_WORKER",
      `the session of claim ${claim} got no worker: ${errorText(cause)}`,
      {
        cause,
      },
    );
  }
}

/** @throws MILLPOND_E_TOO_MANY_SESSIONS, and the signal's reason */
async function takePlace(
  { places, admission }: SessionOpener,
  payload: TicketPayload,
  signal: AbortSignal | undefined,
): Promise<Disposable> {
  try {
    return await places.take(payload, signal);
  } catch (error) {
    // The controller counts the ticket until the end of its session is reported.
    admission.forgo(payload);
    throw error;
  }
}

function parseTransport(text: string): "auto" | "shm" | "tcp" {
  if (text === "" || text === "auto") return "auto";
  if (text === "shm" || text === "tcp") return text;
  throw millpondError("MILLPOND_E_INVALID", `the transport ${quote(text)} is not one of auto, shm, tcp`);
}

/** Checks that the devices are here, healthy, and of one driver: a worker loads only one. */
function assertServable(
  { devices, illnessOf }: Pick<SessionOpener, "devices" | "illnessOf">,
  payload: TicketPayload,
): void {
  const drivers = new Set<string>();
  for (const { uuid } of payload.devices) {
    const device = devices.find((candidate) => candidate.description.uuid === uuid);
    if (device === undefined) {
      throw millpondError(
        "MILLPOND_E_DEVICE_UNHEALTHY",
        `node ${payload.node} has no device ${quote(uuid)} any more`,
      );
    }
    const illness = illnessOf(uuid);
    if (illness !== undefined) {
      throw millpondError(
        "MILLPOND_E_DEVICE_UNHEALTHY",
        `device ${payload.node}/${device.index} is unhealthy: ${illness}`,
      );
    }
    drivers.add(device.driver);
  }
  if (drivers.size > 1) {
    throw millpondError(
      "MILLPOND_E_NO_WORKER",
      `the devices of claim ${payload.claim} belong to ${drivers.size} driver libraries, and a worker loads one`,
      { remedy: "Request devices of one kind." },
    );
  }
}
