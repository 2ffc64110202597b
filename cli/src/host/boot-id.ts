// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";

/** Identity of this boot of the machine; empty where the kernel does not provide it. */
export function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return ""; // Then every node counts as another machine.
  }
}
