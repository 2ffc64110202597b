// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";

/**
 * Resolves with the result of `read`.
 *
 * @throws MILLPOND_E_NOT_FOUND naming the path when it cannot be read
 */
export async function readable<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const reason = error instanceof Error && "code" in error ? String(error.code) : String(error);
    throw millpondError("MILLPOND_E_NOT_FOUND", `cannot read ${quote(path)}: ${reason}`, {
      remedy: "Check the folder that --data names.",
      cause: error,
    });
  }
}
