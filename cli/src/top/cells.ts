// SPDX-License-Identifier: Apache-2.0

// Text in the cells of a terminal.

/** Control characters, and characters that change the direction of text: names that other users chose may contain them. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** East Asian wide and full-width characters, and pictographs: two cells each. */
const wide =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]/u;
const combining = /\p{M}/u;

/** Returns the text with unprintable characters replaced. */
export function clean(text: string): string {
  return text.replace(unprintable, "�");
}

function cellsOf(character: string): number {
  if (combining.test(character)) return 0;
  return wide.test(character) ? 2 : 1;
}

/**
 * Returns the text in exactly `width` cells: padded with blanks, or truncated with a `~` at the cut. `keep` selects the part
 * to keep: names of devices differ at their end.
 */
export function fit(
  text: string,
  width: number,
  align: "left" | "right" = "left",
  keep: "start" | "end" = "start",
): string {
  if (/^[\x20-\x7e]*$/.test(text) && text.length <= width) {
    return align === "right" ? text.padStart(width) : text.padEnd(width);
  }
  const all = Array.from(clean(text));
  const needed = all.reduce((sum, character) => sum + cellsOf(character), 0);
  if (needed <= width) {
    const blanks = " ".repeat(width - needed);
    return align === "right" ? blanks + all.join("") : all.join("") + blanks;
  }
  const shown: string[] = [];
  let used = 0;
  for (const character of keep === "end" ? all.toReversed() : all) {
    if (used + cellsOf(character) > width - 1) break;
    shown.push(character);
    used += cellsOf(character);
  }
  if (width === 0) return "";
  const blanks = " ".repeat(width - 1 - used);
  return keep === "end" ? `~${shown.toReversed().join("")}${blanks}` : `${shown.join("")}~${blanks}`;
}

/**
 * Returns a bar of `width` cells. `granted` and `used` are fractions of 1; the used part is dark, the rest of the grant
 * light.
 */
export function bar(used: number | undefined, granted: number, width: number): string {
  const cells = (part: number): number => Math.round(Math.min(Math.max(part, 0), 1) * width);
  const dark = used === undefined ? 0 : cells(used);
  const light = Math.max(cells(granted) - dark, 0);
  return `${"#".repeat(dark)}${(used === undefined ? "?" : "-").repeat(light)}`.padEnd(width, ".");
}
