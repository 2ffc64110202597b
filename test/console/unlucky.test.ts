// SPDX-License-Identifier: Apache-2.0
// The console in a browser with a wrong clock, back and forth in its history, and with each dialog open in other colours and languages.
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";
import { startPool } from "./small-pool.ts";

const hourMs = 3_600_000;

/** A script that sets the page's clock wrong. */
function wrongClock(byMs: number): string {
  return `{
    const Right = Date;
    globalThis.Date = class extends Right {
      constructor(...given) {
        super(...(given.length === 0 ? [Right.now() + ${byMs}] : given));
      }
      static now() {
        return Right.now() + ${byMs};
      }
    };
  }`;
}

describe.skipIf(missingBrowser !== "")(`unlucky users of the console${missingBrowser}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser.close();
  });

  it.each([-72 * hourMs, -hourMs, 72 * hourMs])(
    "see right ages and periods when their clock is wrong by %i ms",
    async (byMs) => {
      await using pool = await startPool();
      await using watched = await WatchedPage.open(browser, pool.url);
      await watched.context.addInitScript(wrongClock(byMs));
      const { page } = watched;
      await watched.visit("nodes");
      expect(Math.abs((await page.evaluate<number>("Date.now()")) - byMs - Date.now())).toBeLessThan(
        hourMs / 2,
      );
      await watched.logIn(pool.adminToken);
      await expect.poll(() => watched.row("node-a").innerText()).toMatch(/\b\d{1,2}s ago/);
      await watched.visit("claims");
      await expect.poll(() => watched.row("train").innerText()).toMatch(/\b\d{1,2}s\b/);
      await watched.visit("usage?since=1d");
      await expect.poll(() => watched.row("default").innerText()).toMatch(/default\s+default\s+2\s/);
      watched.expectNoFaults();
    },
  );

  it("go back and forth, and find each view as they left it", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("claims?q=train");
    await watched.logIn(pool.adminToken);
    await watched.row("train").waitFor();
    const go = async (view: string) => {
      await page.getByRole("navigation").getByRole("link", { name: view, exact: true }).click();
      await page.getByRole("heading", { name: view, exact: true }).waitFor();
    };
    await go("Nodes");
    await page.getByRole("searchbox").fill("node-b");
    await watched.row("node-a").waitFor({ state: "detached" });
    await go("Events");
    await page.goBack();
    await watched.row("node-b").waitFor();
    expect(await watched.row("node-a").count()).toBe(0);
    expect(await page.getByRole("searchbox").inputValue()).toBe("node-b");
    await page.goBack();
    await watched.row("train").waitFor();
    expect(await watched.row("big").count()).toBe(0);
    await page.goForward();
    await page.goForward();
    await page.getByRole("heading", { name: "Events", exact: true }).waitFor();
    await watched.row("ClaimBound").first().waitFor();
    // A page that is loaded again is where it was, and the browser's history leads out of it as before.
    await page.reload();
    await watched.row("ClaimBound").first().waitFor();
    await page.goBack();
    await watched.row("node-b").waitFor();
    expect(page.url()).toBe(`${pool.url}/console/nodes?q=node-b`);
    watched.expectNoFaults();
  });

  it.each([
    ["light", "en-US"],
    ["dark", "en-US"],
    ["dark", "zh-CN"],
  ] as const)("open every dialog without a finding of axe: %s, %s", async (colorScheme, locale) => {
    await using pool = await startPool();
    const { access, queues } = pool.clients();
    await queues.putTenant({ tenant: { name: "team-a", limit: { gpuMilli: 1000n } } });
    await access.createToken({ name: "ann", role: "user", tenant: "team-a" });
    await using watched = await WatchedPage.open(browser, pool.url, { colorScheme, locale });
    const { page } = watched;
    const code = await access.createLoginCode({});
    await watched.visit(`login#${code.code}`);
    await page.getByRole("navigation").waitFor();
    const opened = new Map<string, number>();
    for (const view of ["nodes/node-b", "claims", "claims/train", "queues", "tenants", "access"]) {
      await watched.visit(view);
      const buttons = page.locator("#content button:has(+ dialog)");
      await buttons.first().waitFor();
      for (const button of await buttons.all()) {
        await button.click();
        await page.getByRole("dialog").waitFor();
        await watched.expectAccessible();
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "hidden" });
      }
      opened.set(view, await buttons.count());
    }
    for (const [view, count] of opened) expect(count, view).toBeGreaterThan(0);
    watched.expectNoFaults();
  });
});
