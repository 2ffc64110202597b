// SPDX-License-Identifier: Apache-2.0

// Quantities as Kubernetes writes them.

import { millpondError, quote } from "@millpond/api";

const pattern = /^\+?(\d{1,19})(?:\.(\d{0,9}))?(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d{1,2})?$/;

const binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] as const;

/** Powers of ten of the decimal suffixes. */
const decimal: Readonly<Record<string, number>> = {
  n: -9,
  u: -6,
  m: -3,
  k: 3,
  M: 6,
  G: 9,
  T: 12,
  P: 15,
  E: 18,
};

/**
 * Reads a quantity that must be a whole number: `3`, `8Gi`, `1.5Ki`, `16k`, `2e3`.
 *
 * @param what For the message: `millpond.dev/vgpu`.
 * @throws MILLPOND_E_INVALID for anything else, including negative numbers and fractions
 */
export function parseWholeQuantity(text: string, what: string): bigint {
  const match = pattern.exec(text);
  if (match === null) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${what}: ${quote(text)} is not a quantity such as 1, 30 or 8Gi`,
    );
  }
  const [, whole = "", decimals = "", suffix = ""] = match;
  let numerator = BigInt(whole + decimals);
  let power = -decimals.length;
  const shift = binary.findIndex((each) => each === suffix);
  if (shift >= 0) {
    numerator <<= BigInt(10 * (shift + 1));
  } else if (suffix !== "") {
    power += decimal[suffix] ?? Number(suffix.slice(1));
  }
  if (power >= 0) return numerator * 10n ** BigInt(power);
  const divisor = 10n ** BigInt(-power);
  if (numerator % divisor !== 0n) {
    throw millpondError("MILLPOND_E_INVALID", `${what}: ${quote(text)} is not a whole number`);
  }
  return numerator / divisor;
}

/** Writes bytes as a quantity that `parseWholeQuantity` reads back, in the largest binary unit that divides it. */
export function formatQuantity(bytes: bigint): string {
  for (let index = binary.length - 1; index >= 0; index -= 1) {
    const factor = 1n << BigInt(10 * (index + 1));
    if (bytes >= factor && bytes % factor === 0n) return `${bytes / factor}${binary[index]}`;
  }
  return String(bytes);
}
