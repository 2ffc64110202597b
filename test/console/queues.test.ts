// SPDX-License-Identifier: Apache-2.0
// Queues and tenants are made, changed and deleted in the console.
import { Borrowing } from "@millpond/api";
import { fakeDevice } from "@millpond/controller/testing/fake-agent";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ConsolePool, launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";

const GiB = 1n << 30n;

describe.skipIf(missingBrowser !== "")(`queues and tenants in the console${missingBrowser}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser.close();
  });

  it("an administrator makes, changes and deletes a queue, as the command beside it would", async () => {
    await using pool = await ConsolePool.start({ "node-a": [fakeDevice(0, 4n * GiB)] });
    const { access, queues } = pool.clients();
    const find = async (wanted: string) =>
      (await queues.listQueues({})).queues.find(({ name }) => name === wanted);
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    const dialog = page.getByRole("dialog");
    const field = (label: string) => dialog.getByLabel(label, { exact: true });
    const act = (label: string) => dialog.getByRole("button", { name: label, exact: true }).click();
    await watched.visit("queues");
    await watched.logIn(pool.adminToken);
    await page.getByRole("button", { name: "New queue" }).click();
    await watched.expectAccessible();
    // The browser sends nothing without a name that a queue can have.
    await field("Name").fill("Vision!");
    await act("New queue");
    expect(await dialog.locator("input:invalid").count()).toBe(1);
    await field("Name").fill("vision");
    await field("Parent").fill("no-such-queue");
    await field("Weight").fill("3");
    await dialog.getByLabel("Borrows").selectOption("preemptible");
    await field("Guaranteed").fill("gpus=1.5");
    await field("Limit").fill("gpus=much");
    await act("New queue");
    await dialog.getByRole("alert").filter({ hasText: "much" }).waitFor();
    await field("Limit").fill("gpus=4,memory=64Gi");
    await act("New queue");
    await dialog.getByRole("alert").filter({ hasText: "no-such-queue" }).waitFor();
    await field("Parent").fill("");
    await field("Reason, for the audit").fill("a new team");
    expect(await dialog.locator("code").innerText()).toBe(
      "millpond queue create vision --weight 3 --borrowing preemptible --guaranteed gpus=1.5 --limit gpus=4,memory=64Gi",
    );
    await act("New queue");
    await watched.row("vision").waitFor();
    expect(await find("vision")).toMatchObject({
      parent: "",
      weight: 3,
      borrowing: Borrowing.PREEMPTIBLE,
      guaranteed: { gpuMilli: 1500n },
      limit: { gpuMilli: 4000n, memoryBytes: 64n * GiB },
    });
    await watched.expectAccessible();

    await page.getByRole("button", { name: "Change: vision" }).click();
    expect(await field("Guaranteed").inputValue()).toBe("gpus=1.5");
    await field("Limit").fill("");
    expect(await dialog.locator("code").innerText()).toBe("millpond queue change vision --limit none");
    await act("Change");
    await dialog.waitFor({ state: "hidden" });
    const changed = await find("vision");
    expect([changed?.weight, changed?.limit?.gpuMilli]).toEqual([3, undefined]);

    await queues.putQueue({ queue: { name: "detector", parent: "vision" } });
    await page.getByRole("button", { name: "Delete: vision", exact: true }).click();
    await act("Delete");
    await dialog.getByRole("alert").filter({ hasText: "has children, such as detector" }).waitFor();
    await queues.deleteQueue({ name: "detector" });
    await act("Delete");
    await watched.row("vision").waitFor({ state: "detached" });
    expect(await find("vision")).toBeUndefined();
    const { records } = await access.listAudit({});
    expect(
      records
        .filter(({ subject }) => subject === "queue/vision")
        .map(({ what, why, result }) => [what.split("/")[1], why, result]),
    ).toEqual([
      ["PutQueue", "", "MILLPOND_E_NOT_FOUND"],
      ["PutQueue", "a new team", "ok"],
      ["PutQueue", "", "ok"],
      ["DeleteQueue", "", "MILLPOND_E_IN_USE"],
      ["DeleteQueue", "", "ok"],
    ]);
    watched.expectNoFaults();
  });

  it("an administrator makes, changes and deletes a tenant, and a user is not offered it", async () => {
    await using pool = await ConsolePool.start({ "node-a": [fakeDevice(0, 4n * GiB)] });
    const { access, queues } = pool.clients();
    const limitOf = async (wanted: string) =>
      (await queues.listTenants({})).tenants.find(({ name }) => name === wanted)?.limit?.gpuMilli;
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    const dialog = page.getByRole("dialog");
    const field = (label: string) => dialog.getByLabel(label, { exact: true });
    const act = (label: string) => dialog.getByRole("button", { name: label, exact: true }).click();
    await watched.visit("tenants");
    await watched.logIn(pool.adminToken);
    await page.getByRole("button", { name: "New tenant" }).click();
    await watched.expectAccessible();
    await field("Name").fill("team-a");
    await field("Limit").fill("gpus=2");
    expect(await dialog.locator("code").innerText()).toBe("millpond tenant create team-a --limit gpus=2");
    await act("New tenant");
    await watched.row("team-a").waitFor();
    expect(await limitOf("team-a")).toBe(2000n);
    await page.getByRole("button", { name: "Change: team-a" }).click();
    await field("Limit").fill("gpus=3");
    await act("Change");
    await dialog.waitFor({ state: "hidden" });
    expect(await limitOf("team-a")).toBe(3000n);

    const limits = async () => {
      const { tenants } = await queues.listTenants({});
      const { each, users = [] } = tenants.find(({ name }) => name === "team-a")?.userLimits ?? {};
      return [each?.gpuMilli, users.map(({ user, limit }) => [user, limit?.gpuMilli])];
    };
    await page.getByRole("button", { name: "Change: team-a" }).click();
    await field("Limit of each user").fill("gpus=1");
    await page.getByRole("button", { name: "Add a limit for one user" }).click();
    await act("Change");
    // A limit needs a user.
    expect(await dialog.locator("input:invalid").count()).toBe(1);
    await field("User 1").fill("ann");
    await field("Limit of user 1").fill("gpus=2");
    await watched.expectAccessible();
    expect(await dialog.locator("code").innerText()).toBe(
      "millpond tenant change team-a --limit gpus=3 --user-limit gpus=1 && " +
        "millpond tenant change team-a --user ann --user-limit gpus=2",
    );
    await act("Change");
    await dialog.waitFor({ state: "hidden" });
    expect(await limits()).toEqual([1000n, [["ann", 2000n]]]);
    await watched.row("team-a").getByText("ann: 2 GPU").waitFor();
    // A change of the tenant's own limit leaves those of its users alone.
    await page.getByRole("button", { name: "Change: team-a" }).click();
    await field("Limit").fill("gpus=4");
    await act("Change");
    await dialog.waitFor({ state: "hidden" });
    expect(await limits()).toEqual([1000n, [["ann", 2000n]]]);
    await page.getByRole("button", { name: "Change: team-a" }).click();
    await dialog.getByRole("button", { name: "Remove: ann" }).click();
    expect(await dialog.locator("code").innerText()).toContain("--forget-user ann");
    await act("Change");
    await dialog.waitFor({ state: "hidden" });
    expect(await limits()).toEqual([1000n, []]);

    const { secret } = await access.createToken({ name: "ann", role: "user", tenant: "team-a" });
    await page.getByRole("button", { name: "Delete: team-a" }).click();
    await act("Delete");
    await dialog.getByRole("alert").filter({ hasText: "has tokens, such as ann" }).waitFor();
    await page.keyboard.press("Escape");

    await page.getByRole("button", { name: "Log out" }).click();
    await watched.logIn(secret);
    await watched.row("team-a").waitFor();
    expect(await page.getByRole("button", { name: /New|Change|Delete/ }).count()).toBe(0);
    await watched.visit("queues");
    await watched.row("default").waitFor();
    expect(await page.getByRole("button", { name: /New|Change|Delete/ }).count()).toBe(0);

    await access.revokeToken({ name: "ann" });
    await page.getByLabel("Token").waitFor();
    await watched.visit("tenants");
    await watched.logIn(pool.adminToken);
    await page.getByRole("button", { name: "Delete: team-a" }).click();
    await act("Delete");
    await watched.row("team-a").waitFor({ state: "detached" });
    watched.expectNoFaults();
  });
});
