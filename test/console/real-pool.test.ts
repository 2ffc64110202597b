// SPDX-License-Identifier: Apache-2.0
// The web console of a pool of software GPUs, as `millpond up` starts it and `millpond console` opens it.
import { expect, it } from "vitest";
import { Pool } from "../support/pool.ts";
import { launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";

/** Those in the first strip. */
const colours = `(() => {
  const canvas = document.querySelector("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] === 255) found.add([...data.subarray(at, at + 3)].join());
  }
  return [...found];
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
    // What is measured, as the style sheet has it in the light.
    await expect.poll(() => page.evaluate<readonly string[]>(colours)).toContain("47,143,140");
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
