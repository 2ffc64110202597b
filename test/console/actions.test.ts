// SPDX-License-Identifier: Apache-2.0
// What changes something, from the console.
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";
import { startPool } from "./small-pool.ts";

const GiB = 1n << 30n;

describe.skipIf(missingBrowser !== "")(`actions in the console${missingBrowser}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser.close();
  });

  it("what is changed is asked first, with what will follow, and goes to the audit with its reason", async () => {
    await using pool = await startPool();
    const { access, claims, pool: nodes } = pool.clients();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    const dialog = page.getByRole("dialog");
    const act = async (label: string, reason: string) => {
      await dialog.getByLabel("Reason").fill(reason);
      await dialog.getByRole("button", { name: label, exact: true }).click();
    };
    await watched.visit("nodes/node-b");
    await watched.logIn(pool.adminToken);
    await page.getByRole("button", { name: "Cordon", exact: true }).click();
    await watched.expectAccessible();
    await page.keyboard.press("Escape");
    expect((await nodes.getNode({ name: "node-b" })).node?.cordoned).toBe(false);
    await page.getByRole("button", { name: "Cordon", exact: true }).click();
    await act("Cordon", "neuer Lüfter 风扇");
    await page.getByText("ready, cordoned").waitFor();
    expect((await nodes.getNode({ name: "node-b" })).node?.cordonReason).toBe("neuer Lüfter 风扇");
    await page.getByRole("button", { name: "Uncordon" }).click();
    await act("Uncordon", "");
    await page.getByRole("button", { name: "Cordon", exact: true }).waitFor();

    await watched.visit("claims/train");
    await page.getByRole("button", { name: "Resize" }).click();
    await dialog.getByLabel("Memory of each").fill("1Ti");
    expect(await dialog.locator("code").innerText()).toBe("millpond resize train -m 1Ti");
    await act("Resize", "");
    await dialog.getByRole("alert").filter({ hasText: "MILLPOND_E_" }).waitFor();
    await dialog.getByLabel("Memory of each").fill("1Gi");
    await act("Resize", "too much");
    await dialog.waitFor({ state: "hidden" });
    expect((await claims.getClaim({ name: "train" })).claim?.memoryBytes).toBe(GiB);

    await page.getByRole("button", { name: "Prioritize" }).click();
    expect(await dialog.getByLabel("Priority", { exact: true }).inputValue()).toBe("0");
    await dialog.getByLabel("Priority", { exact: true }).fill("2000");
    await act("Prioritize", "");
    await dialog.getByRole("alert").filter({ hasText: "MILLPOND_E_INVALID" }).waitFor();
    await dialog.getByLabel("Priority", { exact: true }).fill("-5");
    expect(await dialog.locator("code").innerText()).toBe("millpond prioritize train --priority -5");
    await watched.expectAccessible();
    await act("Prioritize", "can wait");
    await dialog.waitFor({ state: "hidden" });
    expect((await claims.getClaim({ name: "train" })).claim?.priority).toBe(-5);

    await watched.visit("nodes/node-a");
    await page.getByRole("button", { name: "Drain" }).click();
    await dialog.getByText("train · 1 session · 30 s of notice").waitFor();
    await act("Drain", "maintenance");
    await expect.poll(async () => (await claims.getClaim({ name: "train" })).claim?.preemptAt).not.toBe(0n);

    await watched.visit("claims/train");
    await page.getByRole("button", { name: "Release" }).click();
    await dialog.getByText("It ends a session.").waitFor();
    await act("Release", "done");
    await page.getByText("released").first().waitFor();
    const { records } = await access.listAudit({});
    expect(records.slice(-7).map(({ what, why, result }) => [what.split("/")[1], why, result])).toEqual([
      ["CordonNode", "", "ok"],
      ["ResizeClaim", "", expect.stringMatching(/^MILLPOND_E_/)],
      ["ResizeClaim", "too much", "ok"],
      ["PrioritizeClaim", "", "MILLPOND_E_INVALID"],
      ["PrioritizeClaim", "can wait", "ok"],
      ["DrainNode", "maintenance", "ok"],
      ["ReleaseClaim", "done", "ok"],
    ]);
    watched.expectNoFaults();
  });

  it("a claim is submitted with its size, queue and lease, and what is wrong with one is said", async () => {
    await using pool = await startPool();
    const { access, claims } = pool.clients();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    const dialog = page.getByRole("dialog");
    const field = (label: string) => dialog.getByLabel(label, { exact: true });
    const submit = dialog.getByRole("button", { name: "Submit", exact: true });
    await watched.visit("claims");
    await watched.logIn(pool.adminToken);
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await watched.expectAccessible();
    // The browser sends nothing without a name that a claim can have.
    await field("Name").fill("It's");
    await submit.click();
    expect(await dialog.locator("input:invalid").count()).toBe(1);
    expect(await dialog.locator("code").innerText()).toBe(
      String.raw`printf %s '{"kind":"Claim","name":"It'\''s","lease":"1h"}' | millpond apply -f -`,
    );
    await field("Name").fill("infer-1");
    await field("Memory of each").fill("1Gi");
    await field("Share of each").fill("25%");
    await field("GPUs").fill("2");
    await field("Lease, renewed by each program that runs").fill("soon");
    await submit.click();
    await dialog.getByRole("alert").filter({ hasText: "soon" }).waitFor();
    await field("Lease, renewed by each program that runs").fill("2h");
    await field("Queue").fill("no-such-queue");
    await submit.click();
    await dialog.getByRole("alert").filter({ hasText: "no-such-queue" }).waitFor();
    await field("Queue").fill("");
    await field("Reason, for the audit").fill("a demonstration");
    expect(await dialog.locator("code").innerText()).toBe(
      `printf %s '{"kind":"Claim","name":"infer-1","lease":"2h","memory":"1Gi","compute":"25%","gpus":2}' | millpond apply -f -`,
    );
    await submit.click();
    await page.getByRole("heading", { name: "Claim infer-1" }).waitFor();
    expect(page.url()).toBe(`${pool.url}/console/claims/infer-1`);
    const { claim } = await claims.getClaim({ name: "infer-1" });
    expect(claim).toMatchObject({
      gpus: 2,
      memoryBytes: GiB,
      computePercent: 25,
      queue: "default",
      leaseSeconds: 7200,
    });
    const { records } = await access.listAudit({});
    expect(records.at(-1)).toMatchObject({ subject: "claim/infer-1", why: "a demonstration", result: "ok" });
    watched.expectNoFaults();
  });
});
