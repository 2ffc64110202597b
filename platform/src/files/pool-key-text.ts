// SPDX-License-Identifier: Apache-2.0

// The text of a pool key's file, which controllers read, and which the setup of a cluster writes for all of them.

import { randomBytes } from "node:crypto";

export const poolKeyPrefix = "millpond-pool-key-1:";
export const poolKeyBytes = 32;

/** Returns the text of a new pool key. */
export function makePoolKeyText(): string {
  return `${poolKeyPrefix}${randomBytes(poolKeyBytes).toString("base64url")}\n`;
}
