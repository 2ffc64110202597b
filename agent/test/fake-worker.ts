// SPDX-License-Identifier: Apache-2.0

/**
 * A stand-in for `millpond-worker` with its command line and control protocol (docs/reference/interfaces.md) but
 * without CUDA. Its data plane takes one JSON line `{"ticket", "clientPid", "program"}`, answers `ok` and serves until
 * the connection ends.
 *
 * `--driver` names a JSON file instead of a library: see FakeDriver. If it is not JSON, the devices come from
 * MILLPOND_SOFTGPU_DEVICES and MILLPOND_SOFTGPU_SEED, as with the software GPU.
 */

import { createHash } from "node:crypto";
import { chmodSync, existsSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { createInterface, type Interface } from "node:readline";
import { parseArgs } from "node:util";

export interface FakeDriver {
  readonly devices?: readonly { readonly uuid: string; readonly memoryBytes: number }[];
  /** Version of the driver's package; default: none. */
  readonly version?: string;
  /** Version of CUDA in the driver's notation; default 13000. */
  readonly cudaVersion?: number;
  /** Memory that the driver takes of devices; devices that are not listed cannot be measured. */
  readonly costs?: readonly {
    readonly uuid: string;
    readonly contextBytes: number;
    readonly printsBytes: number;
    readonly allocatesBytes: number;
  }[];
  /** The probe fails with this line. */
  readonly probeFailure?: string;
  /** Workers write this line to their log and exit with status 1 before they are warm. */
  readonly startFailure?: string;
  /** Workers refuse every assignment with this message. */
  readonly refusal?: string;
  /** The refusal's cause is that the claim has no room. */
  readonly isFull?: boolean;
  /** Devices that must not be used, as the watcher reports them; it keeps reading this file. */
  readonly ill?: readonly { readonly uuid: string; readonly reason: string }[];
  /** Faults of devices, which the watcher reports once. */
  readonly faults?: readonly { readonly uuid: string; readonly reason: string }[];
  /** The watcher prints nothing. */
  readonly isSilent?: boolean;
  /** The watcher prints this line. */
  readonly nonsense?: string;
  /** Workers ignore `close` and SIGTERM. */
  readonly isStubborn?: boolean;
}

const { values } = parseArgs({
  options: {
    driver: { type: "string" },
    probe: { type: "boolean", default: false },
    costs: { type: "boolean", default: false },
    health: { type: "boolean", default: false },
    id: { type: "string", default: "" },
    control: { type: "string", default: "" },
    data: { type: "string", default: "" },
    tcp: { type: "string" },
    "warm-device": { type: "string", default: "" },
    "image-cache": { type: "string", default: "" },
    peers: { type: "string", default: "" },
    gates: { type: "string", default: "" },
    "gate-device": { type: "string", multiple: true },
    claims: { type: "string", default: "" },
    user: { type: "string" },
    "no-containment": { type: "boolean" },
    "trust-pageable-access": { type: "boolean" },
    "orphan-seconds": { type: "string", default: "30" },
    "reconnect-grace": { type: "string", default: "300" },
  },
});
if (values.driver === undefined || !existsSync(values.driver)) {
  process.stderr.write(`fake-worker: no such driver: ${values.driver ?? ""}\n`);
  process.exit(values.driver === undefined ? 2 : 1);
}
const driver = readDriver(values.driver);

if (values.probe) probe();
else if (values.costs) process.stdout.write(`${JSON.stringify({ costs: driver.costs ?? [] })}\n`);
else if (values.health) watch(values.driver);
else if (driver.startFailure !== undefined) {
  process.stderr.write(`${driver.startFailure}\n`);
  process.exitCode = 1;
} else serve();

function readDriver(path: string): FakeDriver {
  const text = readFileSync(path, "utf8");
  if (text.startsWith("{")) return JSON.parse(text) as FakeDriver;
  const count = Number(process.env["MILLPOND_SOFTGPU_DEVICES"] ?? "1");
  const seed = process.env["MILLPOND_SOFTGPU_SEED"] ?? "";
  return {
    devices: Array.from({ length: count }, (_, ordinal) => ({
      uuid: `GPU-${createHash("sha256").update(`${seed}/${ordinal}`).digest("hex").slice(0, 12)}`,
      memoryBytes: 4 * 2 ** 30,
    })),
  };
}

function probe(): void {
  if (driver.probeFailure !== undefined) {
    process.stderr.write(`${driver.probeFailure}\n`);
    process.exitCode = 1;
    return;
  }
  const devices = (driver.devices ?? []).map((device, ordinal) => ({
    ordinal,
    uuid: device.uuid,
    name: "Fake GPU",
    memoryBytes: device.memoryBytes,
    pciBusId: `0000:0${ordinal}:00.0`,
    computeCapability: "7.5",
    multiprocessors: 2,
    kind: "softgpu",
  }));
  const { version = "", cudaVersion = 13_000 } = driver;
  process.stdout.write(`${JSON.stringify({ driver: version, cudaVersion, devices, nvlinks: [] })}\n`);
}

function watch(path: string): void {
  let told = "[]";
  const say = (): void => {
    const { ill = [], faults = [], isSilent = false, nonsense } = readDriver(path);
    const news = told === JSON.stringify(faults) ? [] : faults;
    told = JSON.stringify(faults);
    if (!isSilent) process.stdout.write(`${nonsense ?? JSON.stringify({ ill, faults: news })}\n`);
  };
  say();
  setInterval(say, 50);
  process.stdin.on("end", () => process.exit(0)).resume();
}

/** Reads lines. Ignores errors, which the reader repeats from its socket: a peer that breaks the connection ends it. */
function linesOf(socket: Socket): Interface {
  const lines = createInterface({ input: socket });
  for (const part of [socket, lines]) part.on("error", () => undefined);
  return lines;
}

/** Bytes that every session uses on each device. */
const memoryUsedBytes = 1_048_576;

function serve(): void {
  let state: "warm" | "assigned" | "connected" | "closing" = "warm";
  let assignment:
    | { session: string; ticket: string; expires: number; devices: { uuid: string; memoryBytes: number }[] }
    | undefined;
  let agent: Socket | undefined;
  let client: Socket | undefined;
  let tcpPort = 0;
  let orphanTimer: NodeJS.Timeout | undefined;
  let statsTimer: NodeJS.Timeout | undefined;
  const listeners: Server[] = [];

  const say = (message: object): void => {
    agent?.write(`${JSON.stringify(message)}\n`);
  };
  const leave = (status: number): void => {
    clearInterval(statsTimer);
    for (const listener of listeners) listener.close();
    for (const path of [values.control, values.data]) rmSync(path, { force: true });
    client?.destroy();
    if (agent === undefined) process.exit(status);
    agent.end(() => process.exit(status));
  };
  const endSession = (reason: string, ok: boolean): void => {
    state = "closing";
    say({ type: "closed", session: assignment?.session ?? "", reason, ok });
    leave(ok ? 0 : 3);
  };
  const watchOrphan = (): void => {
    clearTimeout(orphanTimer);
    if (agent !== undefined || assignment !== undefined) return;
    orphanTimer = setTimeout(() => leave(0), Number(values["orphan-seconds"]) * 1000);
  };
  const admit = (socket: Socket, transport: "shm" | "tcp"): void => {
    linesOf(socket).once("line", (line) => {
      const offer = JSON.parse(line) as { ticket: string; clientPid: number; program: string };
      const isWelcome =
        state === "assigned" &&
        assignment !== undefined &&
        offer.ticket === assignment.ticket &&
        Date.now() / 1000 <= assignment.expires;
      if (!isWelcome || assignment === undefined) {
        socket.end("refused\n");
        return;
      }
      const { session, devices } = assignment;
      client = socket;
      state = "connected";
      say({ type: "connected", session, transport, clientPid: offer.clientPid, program: offer.program });
      const sendStats = (): void =>
        say({
          type: "stats",
          session,
          devices: devices.map((device) => ({ uuid: device.uuid, memoryUsedBytes, computeUsedNs: 5e8 })),
          commands: 7,
          launches: 3,
          waits: 1,
        });
      sendStats();
      statsTimer = setInterval(sendStats, 1000);
      socket.on("close", () => {
        if (state === "connected") endSession("the client ended", true);
      });
      socket.write("ok\n");
    });
  };
  const takeAssignment = (message: NonNullable<typeof assignment>): void => {
    if (driver.refusal !== undefined) {
      say({
        type: "refused",
        session: message.session,
        message: driver.refusal,
        isFull: driver.isFull ?? false,
      });
      return;
    }
    assignment = message;
    state = "assigned";
    watchOrphan();
    const untilExpiryMs = Math.max(0, message.expires * 1000 - Date.now());
    setTimeout(() => {
      if (state === "assigned") endSession("no client came before the ticket expired", true);
    }, untilExpiryMs).unref();
    say({ type: "assigned", session: message.session });
  };
  const resize = ({
    session,
    revision,
    devices,
  }: { revision: number } & NonNullable<typeof assignment>): void => {
    const ok = devices.every(({ memoryBytes }) => memoryBytes >= memoryUsedBytes);
    if (ok && assignment !== undefined) assignment.devices = devices;
    say({ type: "resized", session, revision, ok, message: ok ? "" : `${memoryUsedBytes} bytes are in use` });
  };
  const control = createServer((socket) => {
    agent?.destroy();
    agent = socket;
    watchOrphan();
    socket.on("close", () => {
      if (agent !== socket) return;
      agent = undefined;
      watchOrphan();
    });
    say({
      type: "hello",
      id: values.id,
      pid: process.pid,
      protocol: 1,
      apiHash: "0123456789abcdef",
      state,
      tcpPort,
      session: assignment?.session ?? "",
    });
    linesOf(socket).on("line", (line) => {
      const message = JSON.parse(line) as {
        type: "attach" | "assign" | "resize" | "close";
        revision: number;
      } & NonNullable<typeof assignment>;
      if (message.type === "assign") takeAssignment(message);
      else if (message.type === "resize") resize(message);
      else if (message.type === "close" && !driver.isStubborn) {
        if (assignment === undefined) leave(0);
        else endSession("closed by the agent", true);
      }
    });
  });
  const data = createServer((socket) => admit(socket, "shm"));
  listeners.push(control, data);
  process.on("SIGTERM", () => {
    if (!driver.isStubborn) leave(0);
  });
  watchOrphan();
  const openControl = (): void => {
    data.listen(values.data, () => {
      chmodSync(values.data, 0o666);
      control.listen(values.control, () => chmodSync(values.control, 0o600));
    });
  };
  if (values.tcp === undefined) {
    openControl();
    return;
  }
  const tcp = createServer((socket) => admit(socket, "tcp"));
  listeners.push(tcp);
  const [, host = values.tcp, first = "0", last = "0"] = /^(.+):(\d+)-(\d+)$/.exec(values.tcp) ?? [];
  let port = Number(first);
  tcp.on("error", (error) => {
    if (port >= Number(last)) throw error;
    tcp.listen((port += 1), host);
  });
  tcp.on("listening", () => {
    const address = tcp.address();
    tcpPort = typeof address === "object" && address !== null ? address.port : 0;
    openControl();
  });
  tcp.listen(port, host);
}
