// SPDX-License-Identifier: Apache-2.0
// The web console of a pool of software GPUs, as `millpond up` starts it and `millpond console` opens it.
import { expect, it } from "vitest";
import { Pool } from "../support/pool.ts";
import { launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";

/** The colour of the columns for usage within the grant; empty: there are none. */
const measured = `(() => {
  const shape = document.querySelector(".strip .used");
  return shape === null || shape.getBBox().height === 0 ? "" : getComputedStyle(shape).fill;
})()`;

it.skipIf(missingBrowser !== "")(
  `shows what a program is granted, and what is measured of it${missingBrowser}`,
  async () => {
    await using pool = await Pool.start("--devices", "1", "--device-memory", "1Gi");
    const program = pool.startEndless(["-m", "256Mi", "--compute", "30"]);
    const [session] = await pool.connected(1);
    const { stdout } = await pool.millpond(["console", "-o", "json"]);
    const { address, link } = JSON.parse(stdout) as { readonly address: string; readonly link: string };
    await using browser = await launchBrowser();
    await using watched = await WatchedPage.open(browser, new URL(address).origin);
    const { page } = watched;
    await page.goto(link);
    await page.getByRole("heading", { name: "Pool" }).waitFor();
    await page.getByRole("navigation").getByRole("link", { name: "GPUs" }).click();
    const gpu = watched.row("node-a/0");
    await expect.poll(() => gpu.innerText()).toMatch(/in order[^]*30 %[^]*[1-9]\d* %[^]*MiB \/ 1 GiB/);
    await expect.poll(() => page.evaluate<string>(measured)).toBe("rgb(47, 143, 140)");
    expect(await gpu.locator(".badge.good").count()).toBe(1);
    await page.getByRole("navigation").getByRole("link", { name: "Sessions" }).click();
    await watched.row(`(${session?.clientPid})`).waitFor();
    await page.getByRole("link", { name: session?.claim ?? "" }).click();
    await page.getByRole("button", { name: "Release" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Release" }).click();
    await page.getByText("released").first().waitFor();
    expect((await program.finished).status).not.toBe(0);
    watched.expectNoFaults();
  },
);
