// SPDX-License-Identifier: Apache-2.0

// Folders of module images, one for each tenant. Their names are secrets of the tenants: no tenant can find out by a hash
// whether another one has an image, nor load it.

import { chmodSync, chownSync, lstatSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { makeFolders } from "@millpond/platform";

/**
 * Limit of the images of all tenants, in bytes. Workers apply the same limit to the folder of their tenant.
 */
const mostBytes = 8 * 2 ** 30;

/** Interval between checks of the folders' sizes. */
const trimEveryMs = 60_000;

export class TenantImages {
  readonly path: string;
  #isOpenToWorkers = false;
  #trimmedMs = Number.NEGATIVE_INFINITY;

  /**
   * Creates the directory if it is missing, and removes the images that earlier agents kept for all tenants together.
   */
  constructor(path: string) {
    this.path = path;
    makeFolders(path, 0o700);
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (!entry.isDirectory()) rmSync(join(path, entry.name), { force: true });
    }
  }

  /**
   * Workers run as users of their own, and a tenant's claims as several: a process can enter a folder if it knows the
   * name, as the tenant's workers do. They can traverse the directory but not list it.
   */
  openToWorkers(): void {
    this.#isOpenToWorkers = true;
    chownSync(this.path, 0, 0);
    chmodSync(this.path, 0o711);
  }

  /** Creates the folder of that name if it is missing, and marks it as used. */
  open(name: string): void {
    const folder = join(this.path, name);
    makeFolders(folder, 0o700);
    if (this.#isOpenToWorkers) {
      // Workers of earlier releases own their tenant's folder.
      chownSync(folder, 0, 0);
      chmodSync(folder, 0o777);
    }
    const now = new Date();
    utimesSync(folder, now, now);
    this.#trim(name);
  }

  /** Removes the least recently used folders when all together are too large, except the one of that name. */
  #trim(kept: string): void {
    const nowMs = performance.now();
    if (nowMs - this.#trimmedMs < trimEveryMs) return;
    this.#trimmedMs = nowMs;
    const folders = readdirSync(this.path)
      .map((name) => ({ name, bytes: sizeOf(join(this.path, name)), usedMs: usedMs(join(this.path, name)) }))
      .sort((a, b) => a.usedMs - b.usedMs);
    let bytes = folders.reduce((sum, each) => sum + each.bytes, 0);
    for (const folder of folders) {
      if (bytes <= mostBytes) return;
      if (folder.name === kept) continue;
      rmSync(join(this.path, folder.name), { recursive: true, force: true });
      bytes -= folder.bytes;
    }
  }
}

/** Workers remove and replace files in the meantime. */
function sizeOf(folder: string): number {
  return readdirSync(folder)
    .map((name) => lstatSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, bytes) => sum + bytes, 0);
}

function usedMs(folder: string): number {
  return lstatSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
