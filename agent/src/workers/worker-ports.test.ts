// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { parseWorkerPorts, requirePort, tcpAddress } from "./worker-ports.ts";

test("a range of ports has both ends, and not the agent's own port", () => {
  expect(parseWorkerPorts("7200-7299", 7171)).toEqual({ first: 7200, last: 7299 });
  expect(parseWorkerPorts("1-65535", 0)).toEqual({ first: 1, last: 65_535 });
  expect(parseWorkerPorts("7200-7200", 7171)).toEqual({ first: 7200, last: 7200 });
  for (const text of ["", "7200", "7200-", "-7200", "7299-7200", "0-10", "7200-65536", "7200-7299x", "a-b"]) {
    expect(() => parseWorkerPorts(text, 7171)).toThrow(/is not a range of ports.*MILLPOND_E_INVALID/);
  }
  expect(() => parseWorkerPorts("7100-7199", 7171)).toThrow(/contains 7171, on which the agent itself/);
});

test("there are no more workers than ports", () => {
  const ports = { first: 7200, last: 7201 };
  requirePort(ports, 0);
  requirePort(ports, 1);
  expect(() => requirePort(ports, 2)).toThrow(/2 workers.*7200 to 7201.*MILLPOND_E_NO_WORKER/);
  requirePort(undefined, 100_000);
});

test("a worker is told its address as its command line has it", () => {
  expect(tcpAddress("127.0.0.1", undefined)).toBe("127.0.0.1");
  expect(tcpAddress("127.0.0.1", { first: 1, last: 2 })).toBe("127.0.0.1:1-2");
  expect(tcpAddress("::1", { first: 1, last: 2 })).toBe("[::1]:1-2");
});
