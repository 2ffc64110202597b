// SPDX-License-Identifier: Apache-2.0

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Sample } from "../state/history.ts";

const columnWidth = 3;
const lineHeight = 2;
const fullPercent = 100;

/** As `Strip`, as wide as the element that contains it. */
export function WideStrip(props: Omit<Parameters<typeof Strip>[0], "width">) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) {
      return undefined;
    }
    const sizes = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);
  return <div ref={box}>{width > 0 && <Strip {...props} width={width} />}</div>;
}

const kinds = ["unknown", "used", "beyond", "granted"] as const;
type Shapes = Record<(typeof kinds)[number], string>;

/**
 * Samples from left to right, one column each, the newest at the right edge: measured as its height, granted as a line. The
 * column of an unknown sample is grey over its whole height. It consists of shapes because, without a GPU, each canvas of a
 * table costs a quarter of a millisecond in each frame while scrolling.
 *
 * @param full The value of the full height, in percent of a device.
 */
export function Strip({
  samples,
  label,
  full = fullPercent,
  width = 240,
  height = 22,
}: {
  readonly samples: readonly Sample[];
  readonly label: string;
  readonly full?: number;
  readonly width?: number;
  readonly height?: number;
}) {
  const shapes = shapesOf(samples.slice(-Math.floor(width / columnWidth)), { full, width, height });
  return (
    <svg class="strip" role="img" aria-label={label} width={width} height={height}>
      {kinds.map((kind) => shapes[kind] !== "" && <path key={kind} class={kind} d={shapes[kind]} />)}
    </svg>
  );
}

/** As paths, from back to front. */
function shapesOf(
  shown: readonly Sample[],
  { full, width, height }: { readonly full: number; readonly width: number; readonly height: number },
): Shapes {
  const shapes: Shapes = { unknown: "", used: "", beyond: "", granted: "" };
  const left = width - shown.length * columnWidth;
  const topOf = (percent: number): number => Math.round(height * (1 - Math.min(1, percent / full)) * 10) / 10;
  for (const [index, { granted, measured }] of shown.entries()) {
    const column = (top: number, tall: number): string =>
      `M${left + index * columnWidth} ${top}h${columnWidth}v${tall}h-${columnWidth}z`;
    if (measured === undefined) {
      shapes.unknown += column(0, height);
    } else {
      const top = topOf(measured);
      shapes[measured > granted + 2 ? "beyond" : "used"] += column(top, height - top);
    }
    if (granted > 0) {
      shapes.granted += column(Math.round(Math.min(height - lineHeight, topOf(granted))), lineHeight);
    }
  }
  return shapes;
}
