// SPDX-License-Identifier: Apache-2.0
// Pictures of every view, for the documentation: MILLPOND_PICTURES=docs/console npx vitest run test/console/pictures writes
// them there, else they go to build/console-pictures.
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Browser, Page } from "playwright-core";
import { inRoot } from "../../scripts/lib/paths.ts";
import { launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";
import { BusyPool } from "./busy-pool.ts";

/** The address of each view, and a text that it contains once it is rendered. */
const views = {
  pool: ["", "NVIDIA H200"],
  nodes: ["nodes", "gpu-a1"],
  node: ["nodes/gpu-b1", "Xid 79"],
  gpus: ["gpus", "gpu-a1/0"],
  placement: ["placement?n=4&m=60Gi&c=50", "would start now"],
  claims: ["claims", "pretrain"],
  claim: ["claims/pretrain", "Position"],
  sessions: ["sessions", "vllm serve"],
  queues: ["queues", "research"],
  tenants: ["tenants", "speech"],
  usage: ["usage", "vision"],
  events: ["events", "ClaimBound"],
  access: ["access", "vision-ci"],
  audit: ["audit", "CordonNode"],
  connect: ["connect?n=1&m=8Gi&c=50%25", "docker run"],
} as const;

const folder = process.env["MILLPOND_PICTURES"] ?? join("build", "console-pictures");
/** Those that fill the strips of the documentation's pictures, or enough to have strips. */
const samples = folder.startsWith("build") ? 10 : 60;

/** Samples of some minutes, as the page takes them: its clock runs fast, and the load of programs varies meanwhile. */
async function letTimePass(page: Page, pool: BusyPool): Promise<void> {
  for (let sample = 0; sample < samples; sample += 1) {
    await pool.vary(sample);
    let isAnswered = false;
    const answered = page
      .waitForResponse((response) => response.url().endsWith("/ListNodes"))
      .then(() => (isAnswered = true));
    // Slow answers are requested less often.
    while (!isAnswered) await page.clock.runFor(500);
    await answered;
  }
}

describe.skipIf(missingBrowser !== "")(`pictures of the console${missingBrowser}`, () => {
  let browser: Browser;
  let pool: BusyPool;
  beforeAll(async () => {
    browser = await launchBrowser();
    pool = await BusyPool.start();
    mkdirSync(inRoot(folder), { recursive: true });
  });
  afterAll(async () => {
    await browser.close();
    await pool[Symbol.asyncDispose]();
  });

  it.each(["light", "dark"] as const)("of every view, %s, without a finding of axe", async (colorScheme) => {
    await using watched = await WatchedPage.open(browser, pool.url, {
      colorScheme,
      viewport: { width: 1360, height: 800 },
      reducedMotion: "reduce",
    });
    const { page } = watched;
    await page.clock.install();
    await watched.visit("");
    await watched.logIn(pool.adminToken);
    for (const [view, [path, shown]] of Object.entries(views)) {
      await watched.visit(path);
      await page.locator("#content").getByText(shown).first().waitFor();
      const hasStrips = view === "pool" || view === "gpus";
      if (hasStrips && colorScheme === "light") await letTimePass(page, pool);
      await watched.expectAccessible();
      const name = colorScheme === "light" ? `${view}.png` : `${view}-dark.png`;
      if (colorScheme === "light" || folder.startsWith("build")) {
        const picture = await page.screenshot({ path: inRoot(folder, name), animations: "disabled" });
        expect(picture.byteLength, name).toBeGreaterThan(10_000);
      }
    }
    watched.expectNoFaults();
  });
});

it("the page of the console has a picture of every view", () => {
  const text = readFileSync(inRoot("docs", "console.md"), "utf8");
  for (const view of Object.keys(views)) {
    expect(existsSync(inRoot("docs", "console", `${view}.png`)), view).toBe(true);
    expect(text).toContain(`console/${view}.png`);
  }
});
