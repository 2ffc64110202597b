// SPDX-License-Identifier: Apache-2.0

import { percent } from "./format.ts";
import { texts } from "../texts/texts.ts";

/**
 * The granted fraction as an outline and the measured one as a filling, so that grants above usage and usage above
 * grants stand out. Unknown values are hatched.
 *
 * @param granted From 0 to 1.
 * @param measured From 0 to 1; undefined: unknown.
 */
export function Meter({
  granted,
  measured,
  text,
}: {
  readonly granted: number;
  readonly measured: number | undefined;
  /** The text beside it; default: the measured percentage. */
  readonly text?: string;
}) {
  const t = texts();
  const width = (part: number) => ({ width: `${Math.min(1, Math.max(0, part)) * 100}%` });
  const said = `${t.granted} ${percent(granted * 100)}, ${t.measured} ${measured === undefined ? t.unknown : percent(measured * 100)}`;
  return (
    <span class="meter" title={said}>
      <span class="meter-bar" role="img" aria-label={said}>
        {measured === undefined ? (
          <span class="meter-unknown" />
        ) : (
          <span
            class={measured > granted + 0.02 ? "meter-used beyond" : "meter-used"}
            style={width(measured)}
          />
        )}
        {granted > 0 && <span class="meter-granted" style={width(granted)} />}
      </span>
      <span class="meter-text">{text ?? percent(measured === undefined ? undefined : measured * 100)}</span>
    </span>
  );
}
