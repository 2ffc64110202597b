// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";

/** Reason of a change: UTF-8, percent-encoded as in URLs. */
export const reasonHeader = "millpond-reason";

const maxReasonLength = 256;

/** @throws MILLPOND_E_INVALID */
export function parseReason(header: string | null): string {
  if (header === null) {
    return "";
  }
  let text: string;
  try {
    text = decodeURIComponent(header);
  } catch {
    throw millpondError("MILLPOND_E_INVALID", "the header Millpond-Reason is not percent-encoded UTF-8");
  }
  const line = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ").trim();
  if (line.length > maxReasonLength) {
    throw millpondError("MILLPOND_E_INVALID", `the reason is longer than ${maxReasonLength} characters`);
  }
  return line;
}
