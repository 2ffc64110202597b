// SPDX-License-Identifier: Apache-2.0

import { ConnectError } from "@connectrpc/connect";

/** What an error says to people: a Connect error without the prefix that repeats its code. */
export function errorText(error: unknown): string {
  if (error instanceof ConnectError) return error.rawMessage;
  return error instanceof Error ? error.message : String(error);
}
