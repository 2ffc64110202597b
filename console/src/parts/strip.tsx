// SPDX-License-Identifier: Apache-2.0

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Sample } from "../state/history.ts";

const columnWidth = 3;
const lineHeight = 2;
const fullPercent = 100;

interface Paint {
  readonly used: string;
  readonly beyond: string;
  readonly granted: string;
  readonly unknown: string;
}

const paintMs = 500;
let last: { readonly at: number; readonly paint: Paint } | undefined;

/** Colours of the style sheet, which know of light and dark. Asked for once for all strips that are drawn together. */
function paintOf(element: Element): Paint {
  const now = performance.now();
  if (last === undefined || now - last.at > paintMs) {
    const style = getComputedStyle(element);
    const of = (name: string) => style.getPropertyValue(name);
    const paint = {
      used: of("--used"),
      beyond: of("--beyond"),
      granted: of("--granted"),
      unknown: of("--unknown"),
    };
    last = { at: now, paint };
  }
  return last.paint;
}

/** As `Strip`, as wide as what it is in. */
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

/**
 * Samples from left to right, one column each, the newest at the right edge: measured as its height, granted as a line. A
 * column of what is not known is grey over its whole height.
 *
 * @param full What the whole height is, percent of a device.
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
  const canvas = useRef<HTMLCanvasElement>(null);
  const newest = samples.at(-1)?.at;
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (element === null || element === undefined || context === null || context === undefined) {
      return;
    }
    const scale = devicePixelRatio;
    element.width = width * scale;
    element.height = height * scale;
    context.scale(scale, scale);
    const paint = paintOf(element);
    const most = Math.floor(width / columnWidth);
    const shown = samples.slice(-most);
    const left = width - shown.length * columnWidth;
    for (const [index, { granted, measured }] of shown.entries()) {
      const x = left + index * columnWidth;
      const top = (percent: number) => height * (1 - Math.min(1, percent / full));
      if (measured === undefined) {
        context.fillStyle = paint.unknown;
        context.fillRect(x, 0, columnWidth, height);
      } else {
        context.fillStyle = measured > granted + 2 ? paint.beyond : paint.used;
        context.fillRect(x, top(measured), columnWidth, height - top(measured));
      }
      if (granted > 0) {
        context.fillStyle = paint.granted;
        context.fillRect(x, Math.round(Math.min(height - lineHeight, top(granted))), columnWidth, lineHeight);
      }
    }
  }, [newest, samples.length, label, full, width, height]);
  return (
    <canvas
      class="strip"
      ref={canvas}
      role="img"
      aria-label={label}
      style={{ width: `${width}px`, height: `${height}px` }}
    />
  );
}
