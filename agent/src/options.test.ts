// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { type AgentOptions, resolveAgentOptions } from "./options.ts";

const options: AgentOptions = {
  name: "node-a",
  controller: "https://controller:7170",
  token: "a-token-of-16-characters",
  drivers: ["libcuda.so.1"],
  worker: "millpond-worker",
  run: "run",
};

test("an agent of a controller elsewhere serves all addresses unless told otherwise", () => {
  expect(resolveAgentOptions(options)).toMatchObject({
    listenHost: "0.0.0.0",
    listenPort: 7171,
    isEncrypted: true,
  });
  const local = "http://127.0.0.1:7170,http://localhost:7170,http://[::1]:7170";
  expect(resolveAgentOptions({ ...options, controller: local })).toMatchObject({
    listenHost: "127.0.0.1",
    isEncrypted: false,
  });
});

test.for([
  { listen: "127.0.0.1:0" },
  { listen: "localhost:0" },
  { listen: "[::1]:7171" },
  { listen: "0.0.0.0:0", advertise: "localhost" },
  { listen: "0.0.0.0:0", advertise: "127.1.2.3" },
  { listen: "127.0.0.1:0", controller: "http://127.0.0.1:7170,https://10.77.0.1:7170" },
])("an agent that would be reached on loopback refuses a controller that is not: %j", (more) => {
  expect(() => resolveAgentOptions({ ...options, ...more })).toThrow(
    /by programs of this machine only, and its controller https:.*Omit --listen and --advertise/,
  );
});

test("an address that others reach stands in for the one that it listens at", () => {
  expect(
    resolveAgentOptions({ ...options, listen: "127.0.0.1:0", advertise: "gateway.example" }),
  ).toMatchObject({ advertisedHost: "gateway.example", listenHost: "127.0.0.1" });
});
