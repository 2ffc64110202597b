// SPDX-License-Identifier: Apache-2.0
import { once } from "node:events";
import { createServer, get } from "node:https";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { agentTransportOptions, agentUrl, parseAgentUrl } from "./agent-url.ts";
import { makeAuthority, makeServerCertificate } from "./x509.ts";

const digits = "00112233445566778899aabbccddeeff".repeat(2);

test("an address is taken apart", () => {
  expect(parseAgentUrl("http://127.0.0.1:7171/")).toEqual({
    baseUrl: "http://127.0.0.1:7171",
    fingerprint: undefined,
  });
  expect(parseAgentUrl(`https://[2001:db8::7]:7171/#sha256=${digits}`)).toEqual({
    baseUrl: "https://[2001:db8::7]:7171",
    fingerprint: digits,
  });
});

test.each([
  "127.0.0.1:7171",
  "ftp://a",
  "http://a:b@c",
  "http://a?b",
  "http://a#b",
  `http://a#sha256=${digits}`,
  "https://a",
  "https://a#sha256=",
  `https://a#sha256=${digits}0`,
  `https://a#sha256=${digits.replace("0", "x")}`,
])("%s is no address of an agent", (text) => {
  expect(() => parseAgentUrl(text)).toThrow("[MILLPOND_E_INVALID]");
});

test("only the server of that certificate is spoken to", async () => {
  const validity = { from: new Date(0), to: new Date(1) };
  const certificates = [1, 2].map(() =>
    makeServerCertificate(makeAuthority("nobody", validity), ["elsewhere"], validity),
  );
  const [own, other] = certificates.map(({ certificate }) => certificate);
  let requests = 0;
  const server = createServer({ cert: own, key: certificates[0]?.key }, (_, answer) => {
    requests += 1;
    answer.end("hello");
  });
  onTestFinished(() => void server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const baseUrl = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const ask = async (certificate: string): Promise<number | undefined> => {
    const { nodeOptions } = agentTransportOptions(agentUrl(baseUrl, certificate));
    const request = get(baseUrl, { ...nodeOptions });
    const [answer] = (await once(request, "response")) as [{ statusCode?: number; resume(): void }];
    answer.resume();
    return answer.statusCode;
  };
  expect(await ask(own ?? "")).toBe(200);
  await expect(ask(other ?? "")).rejects.toThrow("[MILLPOND_E_TLS]");
  expect(requests).toBe(1);
});
