// SPDX-License-Identifier: Apache-2.0
// Views and actions for administrators: where a claim would go, single GPUs, tokens, and how programs connect.
import { fakeDevice } from "@millpond/controller/testing/fake-agent";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ConsolePool, launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";

const GiB = 1n << 30n;

describe.skipIf(missingBrowser !== "")(`the console${missingBrowser}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser.close();
  });

  it("what would happen to a claim is what happens to it", async () => {
    await using pool = await ConsolePool.start({
      "node-a": Array.from({ length: 4 }, (_, index) => fakeDevice(index, 8n * GiB)),
      "node-b": Array.from({ length: 2 }, (_, index) => fakeDevice(index, 16n * GiB)),
      "node-c": [{ ...fakeDevice(0, 40n * GiB), name: "NVIDIA A100" }],
    });
    const { claims } = pool.clients();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("placement");
    await watched.logIn(pool.adminToken);
    const field = (label: string) => page.getByLabel(label, { exact: true });
    const wishes = [
      { gpus: 1, memoryGiB: 3n, share: 40, model: "" },
      { gpus: 2, memoryGiB: 5n, share: 60, model: "" },
      { gpus: 1, memoryGiB: 20n, share: 50, model: "a100" },
      { gpus: 3, memoryGiB: 2n, share: 30, model: "" },
      { gpus: 2, memoryGiB: 14n, share: 90, model: "" },
    ];
    for (const [index, { gpus, memoryGiB, share, model }] of wishes.entries()) {
      await field("GPUs").fill(String(gpus));
      await field("Memory of each").fill(`${memoryGiB}Gi`);
      await field("Share of each").fill(`${share}%`);
      await field("Model").fill(model);
      await page.evaluate(
        "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))",
      );
      const verdict = await page.locator(".verdict").innerText();
      const { claim } = await claims.createClaim({
        claim: {
          name: `claim-${index}`,
          gpus,
          memoryBytes: memoryGiB * GiB,
          computePercent: share,
          models: model === "" ? [] : [model],
          leaseSeconds: 3600,
        },
      });
      if (claim?.allocation === undefined) {
        expect(verdict).toBe(`It would wait: ${claim?.reason}.`);
      } else {
        const { nodes } = await pool.clients().pool.listNodes({});
        const indexOf = new Map(
          nodes
            .find(({ name }) => name === claim.allocation?.node)
            ?.devices.map(({ uuid, index: at }) => [uuid, at]),
        );
        const where = claim.allocation.devices.map(({ uuid }) => indexOf.get(uuid)).join(",");
        expect(verdict).toContain(`It would start now on ${claim.allocation.node}/${where} ·`);
      }
      // The next request is evaluated in a pool that contains this claim.
      await expect.poll(() => page.evaluate<readonly string[]>(heights)).toEqual(await granted(pool));
    }
    await watched.expectAccessible();
    expect(new URL(page.url()).search).toBe("?n=2&m=14Gi&c=90%25");
    await field("Memory of each").fill("900Gi");
    await expect.poll(() => page.locator(".verdict").innerText()).toMatch(/would wait.*GiB/);
    await field("Memory of each").fill("lots");
    await page.locator("#content .trouble").filter({ hasText: "lots" }).waitFor();
    watched.expectNoFaults();
  });

  it("one GPU is cordoned, and a token made, shown once and revoked", async () => {
    await using pool = await ConsolePool.start({
      "node-a": [fakeDevice(0, 8n * GiB), fakeDevice(1, 8n * GiB)],
    });
    const { access, pool: nodes } = pool.clients();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    const dialog = page.getByRole("dialog");
    await watched.visit("nodes/node-a");
    await watched.logIn(pool.adminToken);
    await watched.row("node-a/1").getByRole("button", { name: "Cordon" }).click();
    await watched.expectAccessible();
    await dialog.getByLabel("Reason").fill("fan");
    expect(await dialog.locator("code").innerText()).toBe("millpond cordon node-a/1");
    await dialog.getByRole("button", { name: "Cordon", exact: true }).click();
    await watched.row("node-a/1").getByText("cordoned").waitFor();
    const { node } = await nodes.getNode({ name: "node-a" });
    expect(node?.devices.map(({ cordoned, cordonReason }) => [cordoned, cordonReason])).toEqual([
      [false, ""],
      [true, "fan"],
    ]);

    await watched.visit("access");
    await page.getByRole("button", { name: "New token" }).click();
    await watched.expectAccessible();
    await dialog.getByLabel("Name").fill("ann");
    await dialog.getByLabel("Valid for").fill("soon");
    const submit = dialog.getByRole("button", { name: "New token", exact: true });
    await submit.click();
    await dialog.getByRole("alert").filter({ hasText: "soon" }).waitFor();
    await dialog.getByLabel("Valid for").fill("30d");
    expect(await dialog.locator("code").innerText()).toBe("millpond token create ann --expires 30d");
    await submit.click();
    const secret = await page.locator(".secret code").innerText();
    await watched.expectAccessible();
    const own = pool.clients(secret);
    expect((await own.claims.listClaims({})).claims).toEqual([]);
    await page.reload();
    await watched.row("ann").waitFor();
    expect(await page.locator(".secret").count()).toBe(0);
    await watched.row("ann").getByRole("button", { name: "Revoke" }).click();
    await dialog.getByRole("button", { name: "Revoke", exact: true }).click();
    await watched.row("ann").waitFor({ state: "detached" });
    await expect(own.claims.listClaims({})).rejects.toThrow("UNAUTHENTICATED");
    expect((await access.listTokens({})).tokens).toEqual([]);
    watched.expectNoFaults();
  });

  it("programs are connected by lines with the pool's address and the size in them", async () => {
    await using pool = await ConsolePool.start({ "node-a": [fakeDevice(0, 8n * GiB)] });
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("connect?m=8Gi&c=50%25&image=registry.example.org/x");
    await watched.logIn(pool.adminToken);
    const text = (title: string) => page.getByRole("region", { name: title }).locator("code").innerText();
    await expect
      .poll(() => text("Shell"))
      .toBe(`millpond login ${pool.url}\nmillpond run -n 1 -m 8Gi -c 50 -- python train.py`);
    expect(await text("Docker")).toContain(`-e MILLPOND_CONTROLLER=${pool.url} \\`);
    expect(await text("Docker")).toMatch(/-e MILLPOND_TOKEN registry\.example\.org\/x python train\.py$/);
    expect(await text("Kubernetes")).toContain("millpond.dev/memory: 8Gi");
    expect(await text("Python and notebooks")).toContain('claim(gpus=1, memory="8Gi", compute=50)');
    expect(await page.locator("#content").innerText()).not.toContain(pool.adminToken);
    await watched.expectAccessible();
    watched.expectNoFaults();
  });
});

const heights = '[...document.querySelectorAll(".gpu-cell.ok > span")].map(({ style }) => style.height)';

/** The amounts that claims hold of each GPU, in the order of the page. */
async function granted(pool: ConsolePool): Promise<readonly string[]> {
  const { nodes } = await pool.clients().pool.listNodes({});
  return nodes.flatMap(({ devices }) =>
    devices.map(({ allocatedComputePercent }) => `${allocatedComputePercent}%`),
  );
}
