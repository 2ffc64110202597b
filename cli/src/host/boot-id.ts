// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";

/** Identifies this boot of the machine; empty if the kernel does not provide an id. */
export function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return ""; // Without an id every node counts as another machine.
  }
}
