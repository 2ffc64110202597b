// SPDX-License-Identifier: Apache-2.0
// The second half of `npm run format`: lays out native code.
import { formatNative } from "./lib/checks/clang-format.ts";
import { script } from "./lib/command.ts";

export async function main(): Promise<void> {
  await script(formatNative);
}
