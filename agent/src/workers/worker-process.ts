// SPDX-License-Identifier: Apache-2.0

/**
 * The whole interface between the agent and the worker program: its command line, its output and its control socket.
 * No other file of the agent knows this protocol, except for questions about drivers (driver-probe.ts), and this file
 * knows nothing of pools or sessions.
 *
 * Rules of the interface (docs/reference/interfaces.md defines the messages):
 * - Every member of a message is present. A member that is missing is an error, never a default.
 * - Absence is spelled out: `session: ""`, `tcpPort: 0`.
 * - Every message of a worker is checked before it is used; one bad line ends the connection, not the agent.
 * - A worker outlives its agent. It runs in a process session of its own, holds none of the agent's pipes, and is
 *   known by its directory alone, so an agent that has restarted can take it over.
 * - Control messages may be lost together with a connection; `hello`, first on each connection, repeats the state.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { StringDecoder } from "node:string_decoder";
import type { ServiceClassWord } from "@millpond/api";
import { z } from "zod";
import { containmentArguments, type WorkerContainment, workerEnvironment } from "./worker-containment.ts";
import { type PortRange, tcpAddress } from "./worker-ports.ts";

/** Revision of the control messages that this agent speaks. */
export const controlProtocol = 1;

const maxLineBytes = 64 * 1024;

const byteCount = z.int().nonnegative();

const illnessSchema = z.array(z.object({ uuid: z.string(), reason: z.string().min(1) }));

const figure = z.int().min(0).max(0xffff_ffff).optional();

const cardSchema = z.object({
  temperatureCelsius: figure,
  powerMilliwatts: figure,
  powerLimitMilliwatts: figure,
  graphicsClockMhz: figure,
  smClockMhz: figure,
  memoryClockMhz: figure,
  maxGraphicsClockMhz: figure,
  maxSmClockMhz: figure,
  maxMemoryClockMhz: figure,
  utilizationPercent: figure,
  memoryUtilizationPercent: figure,
  performanceState: figure,
  eccCorrectedErrors: figure,
  eccUncorrectedErrors: figure,
  remappedRows: figure,
  pendingRowRemaps: figure,
  xids: figure,
  lastXid: figure,
});

/** Current measurements of a device by the driver's management library; absent: the library does not report them. */
export type CardFigures = z.infer<typeof cardSchema>;

const healthSchema = z.object({
  ill: illnessSchema,
  faults: illnessSchema,
  cards: z.array(z.object({ uuid: z.string(), figures: cardSchema })).default([]),
});

/** A message of a watcher of devices. */
export interface DeviceHealthMessage {
  /** Why devices must not be used at present, by UUID; complete. */
  readonly ill: ReadonlyMap<string, string>;
  /** Faults that the driver has reported since the last message, in order. */
  readonly faults: readonly { readonly uuid: string; readonly reason: string }[];
  /** Measurements of devices, by UUID. */
  readonly cards: ReadonlyMap<string, CardFigures>;
}

const helloSchema = z.object({
  type: z.literal("hello"),
  id: z.string(),
  pid: z.int().positive(),
  protocol: z.int(),
  apiHash: z.string(),
  state: z.enum(["warm", "assigned", "connected", "closing"]),
  tcpPort: z.int().min(0).max(65535),
  session: z.string(),
});

const workerMessageSchema = z.discriminatedUnion("type", [
  helloSchema,
  z.object({ type: z.literal("assigned"), session: z.string() }),
  z.object({
    type: z.literal("resized"),
    session: z.string(),
    revision: z.int().nonnegative(),
    ok: z.boolean(),
    message: z.string(),
  }),
  z.object({
    type: z.literal("refused"),
    session: z.string(),
    message: z.string(),
    /** Whether its claim has no room for another context. A worker of an earlier release does not report it. */
    isFull: z.boolean().default(false),
  }),
  z.object({
    type: z.literal("connected"),
    session: z.string(),
    transport: z.enum(["shm", "tcp"]),
    clientPid: z.int().nonnegative(),
    /** The process id as the program itself sees it. A worker of an earlier release does not report it. */
    programPid: z.int().nonnegative().optional(),
    program: z.string(),
  }),
  z.object({
    type: z.literal("stats"),
    session: z.string(),
    devices: z.array(
      // A worker of an earlier release measures nothing.
      z.object({
        uuid: z.string(),
        memoryUsedBytes: byteCount,
        computeUsedNs: z.number().default(0),
        isMeasured: z.boolean().default(false),
      }),
    ),
    commands: z.number().nonnegative(),
    launches: z.number().nonnegative(),
    waits: z.number().nonnegative(),
    notParked: z.string().default(""),
  }),
  z.object({ type: z.literal("closed"), session: z.string(), reason: z.string(), ok: z.boolean() }),
]);

/** A message of a worker. */
export type WorkerMessage = z.infer<typeof workerMessageSchema>;
export type WorkerHello = z.infer<typeof helloSchema>;

/** One device of an assignment; the order of the array is the order of the client's ordinals. */
export interface AssignedDevice {
  readonly uuid: string;
  readonly memoryBytes: number;
  /** 1 to 100; 0: best effort. */
  readonly computePercent: number;
  readonly serviceClass: ServiceClassWord;
}

/** A message of an agent. */
export type AgentMessage =
  | {
      readonly type: "assign";
      readonly session: string;
      readonly ticket: string;
      /** Unix seconds; the worker admits no client after it. */
      readonly expires: number;
      /** Secret for encrypting TCP traffic, 64 hexadecimal digits; empty: no encryption, on loopback. */
      readonly linkSecret: string;
      readonly parkAfterMs: number;
      readonly devices: readonly AssignedDevice[];
      /** Memory of a session's context on each of the devices, in bytes. */
      readonly overheadBytes: readonly number[];
      /**
       * Memory, on each of the devices, of a context whose kernels print and of one whose kernels allocate memory, in
       * bytes.
       */
      readonly printsBytes: readonly number[];
      readonly allocatesBytes: readonly number[];
      /** Most host memory that the sessions of the allocation may have together; 0: half of the host's. */
      readonly claimHostBytes: number;
      /** Directory of the budgets that the sessions of the allocation share. */
      readonly claimDirectory: string;
      /** Secret of the tenant on this node, 64 hexadecimal digits: the name of the folder of its images. */
      readonly tenant: string;
      /** Revision of the sizes of the devices; the latest one applies to all sessions of the allocation. */
      readonly sizeRevision: number;
      /** Priority of the claim: the order in which sessions of one service class get the device. */
      readonly priority: number;
      /**
       * Secret that the sessions of a claim share on this node, 64 hexadecimal digits; "": the session shares nothing.
       */
      readonly group: string;
    }
  | {
      readonly type: "resize";
      readonly session: string;
      /** Revision of the sizes, repeated in the answer. */
      readonly revision: number;
      readonly devices: readonly AssignedDevice[];
    }
  | { readonly type: "close"; readonly reason: string };

/** Reads one line from a worker. Throws an Error that names the problem. */
export function parseWorkerMessage(line: string): WorkerMessage {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new Error(`the worker sent a line that is not JSON: ${line.slice(0, 120)}`, { cause });
  }
  const parsed = workerMessageSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Error(`the worker sent a message of the wrong shape: ${z.prettifyError(parsed.error)}`);
}

export interface WorkerControlHandlers {
  readonly onMessage: (message: WorkerMessage) => void;
  /** Called once. `error` is absent when the worker simply closed the connection. */
  readonly onClose: (error?: Error) => void;
}

/** An open control connection to one worker. */
export interface WorkerControl {
  send(message: AgentMessage): void;
  /** Drops the connection; the worker continues. `onClose` is not called. */
  disconnect(): void;
}

/**
 * Connects to a worker's control socket and authenticates with the key that the worker was started with. Rejects with
 * the system's error when no process listens there.
 */
export function connectWorker(
  path: string,
  key: string,
  handlers: WorkerControlHandlers,
): Promise<WorkerControl> {
  return new Promise((resolve, reject) => {
    const socket: Socket = createConnection({ path });
    let isOpen = false;
    let failure: Error | undefined;
    let isDropped = false;
    const decoder = new StringDecoder("utf8");
    let pending = "";

    const fail = (error: unknown): void => {
      failure ??= error instanceof Error ? error : new Error(String(error));
      socket.destroy();
    };
    socket.on("data", (chunk) => {
      pending += decoder.write(chunk);
      for (let end = pending.indexOf("\n"); end >= 0 && !isDropped; end = pending.indexOf("\n")) {
        const line = pending.slice(0, end);
        pending = pending.slice(end + 1);
        try {
          handlers.onMessage(parseWorkerMessage(line));
        } catch (error) {
          fail(error);
          return;
        }
      }
      if (pending.length > maxLineBytes) {
        fail(new Error(`the worker sent a line of more than ${maxLineBytes} bytes`));
      }
    });
    socket.on("error", (error) => {
      failure ??= error;
    });
    socket.on("close", () => {
      if (!isOpen) reject(failure ?? new Error(`the connection to ${path} was closed`));
      else if (!isDropped) handlers.onClose(failure);
    });
    socket.on("connect", () => {
      isOpen = true;
      // A worker of an earlier release does not use keys; it logs the unknown message and continues.
      socket.write(`${JSON.stringify({ type: "attach", key })}\n`);
      resolve({
        send: (message) => {
          if (!socket.destroyed) socket.write(`${JSON.stringify(message)}\n`);
        },
        disconnect: () => {
          isDropped = true;
          socket.destroy();
        },
      });
    });
  });
}

/** How to start one worker. Paths are absolute. */
export interface WorkerSpawn {
  readonly worker: string;
  readonly driver: string;
  readonly id: string;
  readonly controlPath: string;
  /** The key by which an agent authenticates to the worker; 64 hexadecimal digits. */
  readonly controlKey: string;
  readonly dataPath: string;
  /** Socket at which the node's other workers reach it. */
  readonly peersPath: string;
  readonly logPath: string;
  /** Address for the TCP data plane; the worker picks a free port on it. */
  readonly tcpHost: string;
  /** The worker picks a free port from this range; undefined: any free port. */
  readonly tcpPorts: PortRange | undefined;
  /** Device on which it makes its context before it has a session; empty: it makes none. */
  readonly warmDevice: string;
  readonly orphanSeconds: number;
  /** Longest time, in seconds, that a session waits for a client whose TCP connection was lost. */
  readonly reconnectGraceSeconds: number;
  /** Directory of the module images that the node's workers share. */
  readonly imageCachePath: string;
  /** Directory of the gates, by which the node's workers take turns on each device; empty: there are none. */
  readonly gatesPath: string;
  /** UUIDs of the devices whose gates it opens before it drops its rights: those that its session may use. */
  readonly gateDevices: readonly string[];
  /** Parent of the directories that assignments name as `claimDirectory`; empty: there are none. */
  readonly claimsPath: string;
  /** Directory for the code that its driver has compiled. */
  readonly jitCachePath: string;
  /** Default: contained, as the caller's user. */
  readonly containment?: WorkerContainment;
}

/**
 * Starts a worker in a process session of its own, its output in its log file, so that neither the death of the agent
 * nor a signal to the agent's terminal reaches it. The caller watches the child's "error" and "exit" events.
 */
export function spawnWorker(options: WorkerSpawn): ChildProcess {
  const log = openSync(options.logPath, "a", 0o600);
  try {
    const child = spawn(
      options.worker,
      [
        "--driver",
        options.driver,
        "--id",
        options.id,
        "--control",
        options.controlPath,
        "--data",
        options.dataPath,
        "--peers",
        options.peersPath,
        "--tcp",
        tcpAddress(options.tcpHost, options.tcpPorts),
        "--warm-device",
        options.warmDevice,
        "--orphan-seconds",
        String(options.orphanSeconds),
        "--reconnect-grace",
        String(options.reconnectGraceSeconds),
        "--image-cache",
        options.imageCachePath,
        ...(options.gatesPath === "" ? [] : ["--gates", options.gatesPath]),
        ...options.gateDevices.flatMap((uuid) => ["--gate-device", uuid]),
        ...(options.claimsPath === "" ? [] : ["--claims", options.claimsPath]),
        ...containmentArguments(options.containment),
      ],
      {
        detached: true,
        stdio: ["ignore", log, log],
        cwd: "/",
        env: {
          ...workerEnvironment(process.env, options.jitCachePath, options.containment?.user),
          MILLPOND_CONTROL_KEY: options.controlKey,
        },
      },
    );
    child.unref();
    return child;
  } finally {
    closeSync(log);
  }
}

/**
 * Starts a child process that polls a driver library for devices that must no longer be used. Calls `onEnd` once, with
 * the reason why the child ended. The child ends with this process, however that ends.
 */
export function watchDevices(options: {
  readonly worker: string;
  readonly driver: string;
  readonly containment: WorkerContainment;
  readonly onWord: (word: DeviceHealthMessage) => void;
  readonly onEnd: (why: string) => void;
}): ChildProcess {
  // The child reads its standard input only to notice the end of this process.
  const contained = containmentArguments(options.containment);
  const child = spawn(options.worker, ["--driver", options.driver, "--health", ...contained], {
    stdio: ["pipe", "pipe", "pipe"],
    env: workerEnvironment(process.env, undefined, options.containment?.user),
  });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-4096);
  });
  child.stdin.on("error", () => undefined);
  const fail = (why: string): void => {
    complaint ||= why;
    child.kill("SIGKILL");
  };
  readLines(child.stdout, fail, (line) => options.onWord(parseHealth(line)));
  child.on("error", (cause) => fail(`cannot start the worker program ${options.worker}: ${cause.message}`));
  child.on("close", (code, signal) => {
    const said = complaint.trim().split("\n").at(-1) ?? "";
    options.onEnd(said === "" ? `it ended with ${signal ?? `status ${code}`}` : said);
  });
  return child;
}

function parseHealth(line: string): DeviceHealthMessage {
  const { ill, faults, cards } = healthSchema.parse(JSON.parse(line));
  return {
    ill: new Map(ill.map(({ uuid, reason }) => [uuid, reason])),
    faults,
    cards: new Map(cards.map(({ uuid, figures }) => [uuid, figures])),
  };
}

/** Passes each line to `onLine`. Calls `fail` when that throws, or when a line is too long. */
function readLines(
  stream: NodeJS.ReadableStream,
  fail: (why: string) => void,
  onLine: (line: string) => void,
): void {
  let pending = "";
  stream.setEncoding("utf8").on("data", (text: string) => {
    const lines = (pending + text).split("\n");
    pending = lines.pop() ?? "";
    try {
      for (const line of lines) onLine(line);
    } catch {
      fail("it printed an unexpected line instead of unhealthy devices");
    }
    if (pending.length > maxLineBytes) fail(`it sent a line of more than ${maxLineBytes} bytes`);
  });
}
