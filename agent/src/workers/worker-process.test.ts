// SPDX-License-Identifier: Apache-2.0

import { createServer, type Server, type Socket } from "node:net";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connectWorker, controlProtocol, parseWorkerMessage, type WorkerMessage } from "./worker-process.ts";

const hello = {
  type: "hello",
  id: "w-1",
  pid: 7,
  protocol: 1,
  apiHash: "0123456789abcdef",
  state: "warm",
  tcpPort: 0,
  session: "",
} as const;

test("agent and worker speak the same control protocol", () => {
  const header = join(
    import.meta.dirname,
    "..",
    "..",
    "..",
    "native",
    "worker",
    "process",
    "control_channel.h",
  );
  const [, version] = /\bkControlProtocol = (\d+);/.exec(readFileSync(header, "utf8")) ?? [];
  expect(Number(version)).toBe(controlProtocol);
});

describe("messages of a worker", () => {
  test("are read as they are written", () => {
    const messages: WorkerMessage[] = [
      hello,
      { type: "assigned", session: "s" },
      { type: "refused", session: "s", message: "no room", isFull: true },
      { type: "connected", session: "s", transport: "shm", clientPid: 9, programPid: 4, program: "p" },
      {
        type: "stats",
        session: "s",
        devices: [{ uuid: "GPU-1", memoryUsedBytes: 5, computeUsedNs: 7, isMeasured: true }],
        commands: 3,
        launches: 2,
        waits: 1,
        notParked: "it has 4096 bytes of device memory",
      },
      { type: "closed", session: "s", reason: "the client ended", ok: true },
    ];
    for (const message of messages) expect(parseWorkerMessage(JSON.stringify(message))).toEqual(message);
  });

  test("with a member missing or of another type are refused, whichever it is", () => {
    for (const member of Object.keys(hello)) {
      const { [member]: _gone, ...rest } = hello as Record<string, unknown>;
      expect(() => parseWorkerMessage(JSON.stringify(rest)), member).toThrow(/wrong shape/);
      expect(() => parseWorkerMessage(JSON.stringify({ ...hello, [member]: {} })), member).toThrow(
        /wrong shape/,
      );
    }
  });

  test("of any other text are refused with an Error, never anything else", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), (line) => {
        expect(() => parseWorkerMessage(line)).toThrow(/^the worker sent/);
      }),
    );
  });
});

describe("a control connection", () => {
  let directory: string;
  let path: string;
  let server: Server;
  let accept: (socket: Socket) => void;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), "millpond-control-"));
    path = join(directory, "control.sock");
    accept = () => undefined;
    server = createServer((socket) => {
      socket.on("error", () => undefined);
      // Unread input keeps a connection open.
      socket.resume();
      accept(socket);
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
  });

  afterEach(async () => {
    await new Promise((resolve) => server.close(resolve));
    rmSync(directory, { recursive: true });
  });

  /** Connects, and resolves with the messages received and the reason why the connection ended. */
  async function receiveAll(): Promise<{
    readonly messages: WorkerMessage[];
    readonly error: Error | undefined;
  }> {
    const messages: WorkerMessage[] = [];
    const closed = Promise.withResolvers<Error | undefined>();
    await connectWorker(path, "key", {
      onMessage: (message) => messages.push(message),
      onClose: (error) => closed.resolve(error),
    });
    return { messages, error: await closed.promise };
  }

  test("delivers messages however the bytes are cut", async () => {
    const text = `${JSON.stringify({ ...hello, id: "w-ü" })}\n${JSON.stringify({ type: "assigned", session: "s" })}\n`;
    accept = (socket) => {
      const bytes = Buffer.from(text);
      let at = 0;
      const next = (): void => {
        if (at === bytes.length) socket.end();
        else socket.write(bytes.subarray(at, (at += 1)), next);
      };
      next();
    };
    expect(await receiveAll()).toEqual({
      messages: [
        { ...hello, id: "w-ü" },
        { type: "assigned", session: "s" },
      ],
      error: undefined,
    });
  });

  test("ends at the first bad line, and says why", async () => {
    accept = (socket) => socket.write(`${JSON.stringify(hello)}\ngarbage\n${JSON.stringify(hello)}\n`);
    const { messages, error } = await receiveAll();
    expect(messages).toEqual([hello]);
    expect(error?.message).toMatch(/not JSON: garbage/);
  });

  test("ends at a line without end", async () => {
    accept = (socket) => socket.write("x".repeat(70_000));
    expect((await receiveAll()).error?.message).toMatch(/a line of more than 65536 bytes/);
  });

  test("to a socket without a listener is refused", async () => {
    await expect(receiveAllOf(join(directory, "absent.sock"))).rejects.toThrow(/ENOENT/);
  });

  function receiveAllOf(other: string) {
    return connectWorker(other, "key", { onMessage: () => undefined, onClose: () => undefined });
  }
});
