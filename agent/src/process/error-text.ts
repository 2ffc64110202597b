// SPDX-License-Identifier: Apache-2.0

import { ConnectError } from "@connectrpc/connect";

/** The text of an error for people: that of a Connect error without the prefix that repeats its code. */
export function errorText(error: unknown): string {
  if (error instanceof ConnectError) return error.rawMessage;
  return error instanceof Error ? error.message : String(error);
}

/** SQLite's error number for a full disk or an exhausted limit. */
const sqliteFull = 13;

/** Whether an operation failed because the disk is full. */
export function isDiskFull(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
  return code === "ENOSPC" || code === "EDQUOT" || errcode === sqliteFull;
}
