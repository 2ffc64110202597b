// SPDX-License-Identifier: Apache-2.0

// Classifies errors of the pool for the operator.

/** Whether the same request may succeed a moment later. */
export function isPassing(code: string): boolean {
  return [
    "MILLPOND_E_UNREACHABLE",
    "MILLPOND_E_SHUTTING_DOWN",
    "MILLPOND_E_NOT_LEADER",
    "MILLPOND_E_STORE_UNREACHABLE",
    "MILLPOND_E_STATE_FULL",
    "MILLPOND_E_INTERNAL",
    "MILLPOND_E_UNAUTHENTICATED",
    "MILLPOND_E_TLS",
  ].includes(code);
}

export function messageOf(error: unknown): string {
  if (error instanceof Error && "rawMessage" in error) return String(error.rawMessage);
  return error instanceof Error ? error.message : String(error);
}
