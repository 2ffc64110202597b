// SPDX-License-Identifier: Apache-2.0
// The browser of tests and measurements.
import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const path = process.env["MILLPOND_CHROMIUM"] ?? "/usr/bin/chromium";

/** Appended to the name of a skipped test; empty: there is a browser. */
export const missingBrowser = existsSync(path) ? "" : " (not run: no Chromium here)";

export async function launchBrowser(): Promise<Browser> {
  return await chromium.launch({
    executablePath: path,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}
