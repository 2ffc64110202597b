// SPDX-License-Identifier: Apache-2.0

import { LineChart, type LineSeriesOption } from "echarts/charts";
import {
  GridComponent,
  type GridComponentOption,
  LegendComponent,
  type LegendComponentOption,
  TitleComponent,
  type TitleComponentOption,
} from "echarts/components";
import { type ComposeOption, init, use } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import { lastLoad } from "./run.ts";
import type { Curve } from "./summary.ts";

use([GridComponent, LegendComponent, LineChart, SVGRenderer, TitleComponent]);

type PlotOption = ComposeOption<
  GridComponentOption | LegendComponentOption | LineSeriesOption | TitleComponentOption
>;
/** The generic types of ECharts allow one object in place of a list; these name the objects. */
type One<T> = T extends readonly (infer Element)[] ? Element : T;
type Title = One<NonNullable<PlotOption["title"]>>;
type XAxis = One<NonNullable<PlotOption["xAxis"]>>;
type YAxis = One<NonNullable<PlotOption["yAxis"]>>;

/** Lengths in px. */
const size = {
  left: 60,
  panelWidth: 720,
  panelHeight: 300,
  top: 70,
  gap: 86,
  right: 24,
  bottom: 56,
} as const;

/** Upper bound on the width of a character, px: texts are drawn in whatever font the reader has. */
const characterWidth = { legend: 7.5, title: 9 } as const;

const legendMark = { space: 14, width: 24, gap: 6, row: 18 } as const;

/** Distinguishable with any colour vision (the palette of Okabe and Ito). */
const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"] as const;

/** Dashes distinguish curves beyond the number of colours. */
const dashes = ["solid", [6, 3], [2, 2], [8, 3, 2, 3]] as const;

/** Loads at which policies differ: the pool is nearly full. */
const fullLoad = 90;

interface Panel {
  readonly title: string;
  readonly of: (curve: Curve) => readonly number[];
  readonly firstLoad: number;
  /** Whether the axis begins and ends near the values, and not at 0 and 100 %. */
  readonly isClose: boolean;
}

const panels: readonly Panel[] = [
  { title: "GPUs allocated, % of all", of: ({ allocation }) => allocation, firstLoad: 0, isClose: false },
  {
    title: `GPUs allocated, % of all, from ${fullLoad} % asked for`,
    of: ({ allocation }) => allocation,
    firstLoad: fullLoad,
    isClose: true,
  },
  {
    title: "Fragments, % of idle GPU",
    of: ({ fragmentation }) => fragmentation,
    firstLoad: 0,
    isClose: false,
  },
];

/**
 * Allocation and fragmentation over load, and allocation once more where the pool is nearly full: one line for each curve, as
 * a complete SVG document.
 */
export function plotSvg(curves: readonly Curve[], title: string): string {
  const labels = curves.map(labelOf);
  const plotRight = size.left + size.panelWidth;
  const longest = Math.max(0, ...labels.map(({ length }) => length));
  const legendWidth = legendMark.width + legendMark.gap + Math.ceil(longest * characterWidth.legend);
  const width = Math.max(
    plotRight + legendMark.space + legendWidth + size.right,
    size.left + Math.ceil(title.length * characterWidth.title),
  );
  const height = Math.max(
    topOf(panels.length) - size.gap + size.bottom,
    size.top + curves.length * legendMark.row + size.bottom,
  );
  const chart = init(null, null, { renderer: "svg", ssr: true, width, height });
  try {
    chart.setOption({
      animation: false,
      backgroundColor: "#ffffff",
      textStyle: { fontFamily: "sans-serif" },
      title: [
        { text: title, left: size.left, top: 8, padding: 0, textStyle: textStyle(15, "normal") },
        ...panels.map(titleOf),
      ],
      legend: {
        data: [...labels],
        orient: "vertical",
        left: plotRight + legendMark.space,
        top: size.top,
        padding: 0,
        itemWidth: legendMark.width,
        itemHeight: 12,
        itemGap: legendMark.row - 12,
        textStyle: { ...textStyle(12, "normal"), lineHeight: 12 },
        // The line alone, without a symbol for points.
        itemStyle: { opacity: 0 },
      },
      grid: panels.map((_, row) => ({
        left: size.left,
        top: topOf(row),
        width: size.panelWidth,
        height: size.panelHeight,
        outerBoundsMode: "none",
      })),
      xAxis: panels.map(xAxisOf),
      yAxis: panels.map(yAxisOf),
      series: panels.flatMap((panel, row) =>
        curves.map((curve, position) => lineOf(panel, row, curve, position)),
      ),
    } satisfies PlotOption);
    return `${withoutCounters(chart.renderToSVGString())}\n`;
  } finally {
    chart.dispose();
  }
}

/**
 * Removes what contains counters of the process, so that the same curves make the same bytes: the styles for a mouse over a
 * shape, which a picture in a page has no use for, and the prefix of the names of clip paths. Quotes in texts are escaped, so
 * that no text looks like an attribute.
 */
function withoutCounters(svg: string): string {
  return svg
    .replaceAll(/ class="zr\d+-cls-\d+"/g, "")
    .replace(/<style\s*>[^]*?<\/style>\n?/, "")
    .replaceAll(/(id="|="url\(#)zr\d+-/g, "$1");
}

function labelOf({ policy, trace }: Curve): string {
  return `${policy} ${trace}`;
}

/** The y coordinate of a panel's upper edge. */
function topOf(row: number): number {
  return size.top + row * (size.panelHeight + size.gap);
}

function textStyle(fontSize: number, fontWeight: "normal" | "bold") {
  return { color: "#000000", fontFamily: "sans-serif", fontSize, fontWeight } as const;
}

function titleOf({ title }: Panel, row: number): Title {
  return {
    text: title,
    left: size.left,
    top: topOf(row) - 24,
    padding: 0,
    textStyle: textStyle(12, "bold"),
  };
}

function xAxisOf({ firstLoad }: Panel, row: number): XAxis {
  return {
    type: "value",
    gridIndex: row,
    min: firstLoad,
    max: lastLoad,
    name: "GPUs asked for so far, % of all",
    nameLocation: "middle",
    nameGap: 28,
    nameTextStyle: textStyle(12, "normal"),
    interval: 10,
    silent: true,
    axisLabel: textStyle(12, "normal"),
    splitLine: { show: false },
  };
}

function yAxisOf({ isClose }: Panel, row: number): YAxis {
  return {
    type: "value",
    gridIndex: row,
    min: isClose ? (extent) => closeRange(extent).from : 0,
    max: isClose ? (extent) => closeRange(extent).to : 100,
    silent: true,
    axisLabel: textStyle(12, "normal"),
    splitLine: { lineStyle: { color: "#dddddd" } },
  };
}

/** The whole percentages around the values, at least two apart; all percentages if there is no value. */
function closeRange({ min, max }: { readonly min: number; readonly max: number }): {
  readonly from: number;
  readonly to: number;
} {
  if (!Number.isFinite(min) || !Number.isFinite(max)) return { from: 0, to: 100 };
  const to = Math.min(100, Math.max(Math.ceil(max), Math.floor(min) + 2));
  return { from: Math.max(0, Math.min(Math.floor(min), to - 2)), to };
}

function lineOf({ of, firstLoad }: Panel, row: number, curve: Curve, position: number): LineSeriesOption {
  const dash = dashes[Math.floor(position / colours.length) % dashes.length] ?? "solid";
  const color = colours[position % colours.length] ?? colours[0];
  return {
    type: "line",
    name: labelOf(curve),
    xAxisIndex: row,
    yAxisIndex: row,
    symbol: "none",
    silent: true,
    itemStyle: { color },
    lineStyle: { color, width: 1.5, type: dash === "solid" ? dash : [...dash] },
    // Loads at which no claim arrived have no point; the line continues at the next one.
    data: of(curve).flatMap((value, load) =>
      Number.isFinite(value) && load >= firstLoad && load <= lastLoad ? [[load, value]] : [],
    ),
  };
}
