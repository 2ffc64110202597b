// SPDX-License-Identifier: Apache-2.0
import { join } from "node:path";
import { testLog } from "@millpond/agent/testing/fixture";
import { startController, systemClock } from "@millpond/controller";
import { FakeAgent, fakeDevice } from "@millpond/controller/testing/fake-agent";
import { expect, test } from "vitest";
import { connect } from "../../connection/connection.ts";
import { writeContexts } from "../../connection/context.ts";
import { Home } from "../../../test/fixture.ts";

const GiB = 1n << 30n;

test("a spreadsheet runs no text of others from the CSV of the usage", async () => {
  using home = new Home();
  await using controller = await startController({
    stateDirectory: join(home.directory, "controller"),
    listen: "127.0.0.1:0",
    log: testLog,
  });
  const at = { controller: controller.url, token: controller.userToken, ca: undefined };
  writeContexts(home.config, { currentContext: "test", contexts: { test: at } });
  // An agent reports what the driver of its host calls the card.
  const model = '=HYPERLINK("http://evil.example",1)';
  const { url, agentToken: token } = controller;
  const devices = [{ ...fakeDevice(0, 4n * GiB), name: model }];
  await using agent = new FakeAgent({ url, token, clock: systemClock, node: "node-a", devices });
  agent.isPersistent = true;
  await agent.start();
  const { claims } = connect({ ...at, source: "the test" });
  await claims.createClaim({ claim: { name: "train", memoryBytes: GiB, leaseSeconds: 3600 } });
  const usage = async () => (await home.millpond(["usage", "--by", "model", "-o", "csv"])).stdout;
  // There is no row before the claim has been placed for a second, and one without a model where it had to wait.
  await expect.poll(usage).toMatch(/^default,"'=HYPERLINK\(""http:\/\/evil\.example"",1\)",1,/m);
});
