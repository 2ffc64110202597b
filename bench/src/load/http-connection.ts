// SPDX-License-Identifier: Apache-2.0

import { connect, type Socket } from "node:net";
import { once } from "node:events";

const headEnd = Buffer.from("\r\n\r\n");
const lineEnd = Buffer.from("\r\n");

/**
 * One keep-alive connection to a controller on this host, which carries one call at a time. It does as little as possible,
 * because it shares the CPU with the measured controller.
 */
export class HttpConnection {
  readonly #socket: Socket;
  readonly #head: string;
  #received: Buffer = Buffer.alloc(0);
  #answer: PromiseWithResolvers<Buffer> | undefined;
  #failure: Error | undefined;

  private constructor(socket: Socket, host: string, token: string) {
    this.#socket = socket;
    this.#head = `host: ${host}\r\nauthorization: Bearer ${token}\r\ncontent-type: application/proto\r\n`;
    socket.setNoDelay(true);
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(new Error("the controller has closed the connection")));
  }

  static async open(url: string, token: string): Promise<HttpConnection> {
    const { hostname, port, host } = new URL(url);
    const socket = connect(Number(port), hostname);
    await once(socket, "connect");
    return new HttpConnection(socket, host, token);
  }

  /** @throws Error with the answer's text unless its status is 200 */
  async call(path: string, body: Uint8Array): Promise<Buffer> {
    if (this.#answer !== undefined) throw new Error("a call is under way");
    if (this.#failure !== undefined) throw this.#failure;
    this.#answer = Promise.withResolvers();
    const { promise } = this.#answer;
    this.#socket.cork();
    this.#socket.write(`POST ${path} HTTP/1.1\r\n${this.#head}content-length: ${body.byteLength}\r\n\r\n`);
    this.#socket.write(body);
    this.#socket.uncork();
    return await promise;
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    this.#received = this.#received.byteLength === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    const end = this.#received.indexOf(headEnd);
    if (end < 0) return;
    const head = this.#received.toString("latin1", 0, end);
    const rest = this.#received.subarray(end + headEnd.byteLength);
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    const body = length === undefined ? readChunks(rest) : readExactly(rest, Number(length));
    if (body === undefined) return;
    this.#received = Buffer.alloc(0);
    const answer = this.#answer;
    this.#answer = undefined;
    if (head.startsWith("HTTP/1.1 200")) answer?.resolve(body);
    else answer?.reject(new Error(body.toString("utf8")));
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#answer?.reject(error);
    this.#answer = undefined;
  }
}

/** Undefined: incomplete. */
function readExactly(bytes: Buffer, length: number): Buffer | undefined {
  return bytes.byteLength < length ? undefined : bytes.subarray(0, length);
}

/** Decodes a chunked body. Undefined: incomplete. */
function readChunks(bytes: Buffer): Buffer | undefined {
  const chunks: Buffer[] = [];
  let position = 0;
  for (;;) {
    const end = bytes.indexOf(lineEnd, position);
    if (end < 0) return undefined;
    const length = Number.parseInt(bytes.toString("latin1", position, end), 16);
    const begin = end + lineEnd.byteLength;
    position = begin + length + lineEnd.byteLength;
    if (bytes.byteLength < position) return undefined;
    if (length === 0) return Buffer.concat(chunks);
    chunks.push(bytes.subarray(begin, begin + length));
  }
}
