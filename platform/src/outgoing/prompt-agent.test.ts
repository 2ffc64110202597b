// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { createServer as createHttpServer, get as getHttp, type IncomingMessage } from "node:http";
import { get as getHttps } from "node:https";
import { type AddressInfo, createServer, type Server } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { makePromptAgent, notConnectedCode } from "./prompt-agent.ts";

async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

test("a server that takes a connection and says nothing is given up, and nothing was said to it", async () => {
  let heard = "";
  const silent = createServer((socket) => {
    socket.on("data", (bytes) => {
      heard += bytes.toString("latin1");
    });
    socket.on("error", () => undefined);
  });
  const url = `https://127.0.0.1:${await listen(silent)}`;
  const agent = makePromptAgent(url, { connectMs: 200 });
  const [error] = (await once(getHttps(url, { agent }), "error")) as [Error];
  expect(error).toMatchObject({ code: notConnectedCode, message: "no connection within 0.2 s" });
  expect(heard).not.toContain("GET");
});

test("a connection that was made in time lasts, however long the answer takes", async () => {
  const slow = createHttpServer((_request, response) => {
    setTimeout(() => response.end("ok"), 300);
  });
  const url = `http://127.0.0.1:${await listen(slow)}`;
  const agent = makePromptAgent(url, { connectMs: 100 });
  const [response] = (await once(getHttp(url, { agent }), "response")) as [IncomingMessage];
  expect((await response.toArray()).join("")).toBe("ok");
  agent.destroy();
});
