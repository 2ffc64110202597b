// SPDX-License-Identifier: Apache-2.0
// A login by an OpenID provider in Chromium: through its pages, and back to the view that was asked for.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fakeDevice } from "@millpond/controller/testing/fake-agent";
import { OpenIdProvider } from "@millpond/controller/testing/openid-provider";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ConsolePool, launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";

describe.skipIf(missingBrowser !== "")(`logins by OpenID Connect in the console${missingBrowser}`, () => {
  let browser: Browser;
  let directory: string;
  beforeAll(async () => {
    browser = await launchBrowser();
    directory = mkdtempSync(join(tmpdir(), "millpond-oidc-"));
  });
  afterAll(async () => {
    await browser.close();
    rmSync(directory, { recursive: true, force: true });
  });

  it("lead back to the view, say why they are refused, and end by logging out", async () => {
    await using provider = await OpenIdProvider.start({
      clientId: "millpond",
      clientSecret: "s3cret",
      now: () => Math.floor(Date.now() / 1000),
    });
    const path = join(directory, "oidc.json");
    writeFileSync(join(directory, "secret"), "s3cret");
    const config = {
      issuer: provider.issuer,
      clientId: "millpond",
      clientSecretFile: "secret",
      label: "Example <b>",
      rules: [{ group: "gpu-admins", role: "admin" }],
    };
    writeFileSync(path, JSON.stringify(config));
    await using pool = await ConsolePool.start({ "node-a": [fakeDevice(0, 4n << 30n)] }, { oidc: path });
    await using watched = await WatchedPage.open(browser, pool.url);
    watched.mayVisit.push(provider.issuer);
    const { page } = watched;
    const link = page.getByRole("link", { name: "Log in with Example <b>" });
    provider.claims = { sub: "ann", groups: ["<i>others</i>"] };
    await watched.visit("nodes?q=node-a");
    await link.waitFor();
    await watched.expectAccessible();
    await link.click();
    await page
      .getByRole("alert")
      .filter({ hasText: 'no rule of this pool is for the groups "<i>others</i>"' })
      .waitFor();
    expect(await page.locator("#console").innerText()).not.toContain("node-a");

    provider.claims = { sub: "ann", groups: ["gpu-admins"] };
    await watched.visit("nodes?q=node-a");
    await link.click();
    await watched.row("node-a").waitFor();
    expect(page.url()).toBe(`${pool.url}/console/nodes?q=node-a`);
    expect(await page.locator(".settings").innerText()).toContain("oidc:ann (admin)");
    // Even after the controller was restarted, and in a reloaded page.
    await pool.stopController();
    await pool.startController();
    await page.reload();
    await watched.row("node-a").waitFor();
    const cookies = await watched.context.cookies();
    expect(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite])).toEqual([[true, "Strict"]]);
    await page.getByRole("button", { name: "Log out" }).click();
    await link.waitFor();
    expect(await watched.context.cookies()).toEqual([]);
    watched.expectNoFaults();
  });
});
