// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";

/** Identity of this machine since it was started; empty where the kernel does not say. */
export function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return ""; // Then every node is another machine.
  }
}
