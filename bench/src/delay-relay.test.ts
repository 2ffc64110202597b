// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { DelayRelay } from "./delay-relay.ts";
import { findPrograms } from "./programs.ts";

test("what goes through a relay arrives whole and no earlier than its delay", async () => {
  const echo = createServer((socket) => socket.pipe(socket));
  echo.listen(0, "127.0.0.1");
  await once(echo, "listening");
  onTestFinished(() => void echo.close());
  const delayMs = 20;
  const { port } = echo.address() as AddressInfo;
  await using relay = await DelayRelay.start(
    findPrograms(process.env).transportBench,
    port,
    delayMs * 1000,
    "",
  );
  const sent = Buffer.from(Uint8Array.from({ length: 1 << 20 }, (_, index) => (index * 40_503) >> 8));
  const socket = connect(relay.port, "127.0.0.1");
  const begun = performance.now();
  socket.end(sent);
  const got: Buffer[] = [];
  let first = 0;
  socket.on("data", (piece) => {
    first ||= performance.now();
    if (typeof piece !== "string") got.push(piece);
  });
  await once(socket, "end");
  expect(Buffer.concat(got).equals(sent)).toBe(true);
  expect(first - begun).toBeGreaterThanOrEqual(2 * delayMs);
});
