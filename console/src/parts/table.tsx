// SPDX-License-Identifier: Apache-2.0

// The one table component: sorted and filtered by the address, exported as CSV, with only the visible rows in the page.

import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { setQuery, usePlace } from "../state/place.ts";
import { texts } from "../texts/texts.ts";
import { saveCsv } from "./csv.ts";
import { type Column, Row } from "./row.tsx";

export type { Column };

const rowHeight = 36;
/** The gap between columns, as in the style sheet. */
const gapRem = 0.9;

/** Rows drawn beyond the visible ones, so that fast scrolling shows no gap. */
const spareRows = 6;

/** Scrolling has come to rest, or has become slow, after this time without a jump. */
const restMs = 100;

export function Table<T>({
  label,
  items,
  columns,
  addressOf,
  controls,
  isPart = false,
}: {
  /** The name of the table, and of the exported file. */
  readonly label: string;
  readonly items: readonly T[];
  /** The first column names the row. */
  readonly columns: readonly Column<T>[];
  /** The link of its first cell. */
  readonly addressOf?: (item: T) => string;
  /** More filters. */
  readonly controls?: ComponentChildren;
  /** The view has several tables: the filter and the order in the address do not apply to this one. */
  readonly isPart?: boolean;
}) {
  const t = texts();
  const { query } = usePlace();
  const filter = isPart ? "" : (query.get("q") ?? "");
  const sort = isPart ? "" : (query.get("sort") ?? "");
  const rows = useMemo(
    () => arrange(items, columns, { filter, sort }),
    [items, columns.length, filter, sort],
  );
  const scroller = useRef<HTMLDivElement>(null);
  const filterBox = useRef<HTMLInputElement>(null);
  // `isFast`: more than half a page at a time, so that the rows cannot be read.
  const [view, setView] = useState({ top: 0, height: 800, isFast: false });
  // Keys may come faster than renderings: the next one continues from the last.
  const active = useRef(0);
  const isMoving = useRef(false);
  const [, drawAgain] = useReducer((count: number) => count + 1, 0);

  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) {
      return undefined;
    }
    let lastTop = 0;
    let jumpedAt = Number.NEGATIVE_INFINITY;
    let rest: ReturnType<typeof setTimeout> | undefined;
    // Within a row's height nothing is rendered again: the browser itself scrolls.
    const look = (): void => {
      const top = Math.floor(element.scrollTop / rowHeight) * rowHeight;
      const height = element.clientHeight;
      const hasJumped = Math.abs(top - lastTop) > height / 2;
      const now = performance.now();
      // A single jump, as by the key End, is not fast.
      const isFast = hasJumped && now - jumpedAt < restMs;
      lastTop = top;
      if (hasJumped) jumpedAt = now;
      clearTimeout(rest);
      if (isFast) rest = setTimeout(look, restMs);
      setView((before) =>
        before.top === top && before.height === height && before.isFast === isFast
          ? before
          : { top, height, isFast },
      );
    };
    const sizes = new ResizeObserver(look);
    sizes.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      sizes.disconnect();
      clearTimeout(rest);
      element.removeEventListener("scroll", look);
    };
  }, []);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const isTyping =
        event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
      if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        filterBox.current?.focus();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  // Before the next key.
  useLayoutEffect(() => {
    if (isMoving.current) {
      isMoving.current = false;
      scroller.current
        ?.querySelector<HTMLElement>(`[data-row="${active.current}"] a`)
        ?.focus({ preventScroll: true });
    }
  });

  const move = (event: KeyboardEvent): void => {
    const element = scroller.current;
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const steps: Readonly<Record<string, number>> = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -rows.length,
      End: rows.length,
    };
    const step = steps[event.key];
    if (step === undefined || element === null || rows.length === 0) {
      return;
    }
    event.preventDefault();
    const next = Math.min(rows.length - 1, Math.max(0, active.current + step));
    const [top, bottom] = [next * rowHeight, (next + 1) * rowHeight - element.clientHeight + rowHeight];
    element.scrollTop = Math.min(top, Math.max(bottom, element.scrollTop));
    isMoving.current = true;
    active.current = next;
    drawAgain(undefined);
  };

  const first = Math.max(0, Math.floor(view.top / rowHeight) - spareRows);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + 1 + spareRows);
  const slots = Math.ceil(view.height / rowHeight) + 2 * spareRows + 3;
  // All rows have the same width, so that their columns line up.
  const tracks = useMemo(
    () => ({
      gridTemplateColumns: columns.map(({ width }) => width).join(" "),
      minWidth: `${columns.reduce((sum, { width }) => sum + leastRem(width) + gapRem, 2)}rem`,
    }),
    [columns],
  );
  const onFocus = useCallback((index: number) => {
    active.current = index;
  }, []);
  return (
    <div class="table-box">
      {!isPart && (
        <div class="table-controls">
          <input
            ref={filterBox}
            type="search"
            value={filter}
            placeholder={`${t.filter}  /`}
            aria-label={t.filter}
            onInput={({ currentTarget }) => setQuery({ q: currentTarget.value })}
          />
          {controls}
          <span class="quiet" role="status">
            {t.shown(rows.length, items.length)}
          </span>
          <button type="button" onClick={() => saveCsv(label, columns, rows)}>
            {t.csv}
          </button>
        </div>
      )}
      <div
        class={isPart ? "table part" : "table"}
        ref={scroller}
        role="table"
        aria-label={label}
        aria-rowcount={rows.length + 1}
        // Scrollable content must be reachable by keyboard, even if no row has a link.
        tabIndex={0}
        onKeyDown={move}
      >
        <div class="row head" role="row" aria-rowindex={1} style={tracks}>
          {columns.map(({ id, title, isNumber }) => (
            <ColumnHead
              key={id}
              id={id}
              title={title}
              sort={sort}
              isNumber={isNumber ?? false}
              isPart={isPart}
            />
          ))}
        </div>
        <div class="rows" role="rowgroup" style={{ height: `${rows.length * rowHeight}px` }}>
          {rows.slice(first, last).map((item, offset) => {
            const index = first + offset;
            return (
              <Row
                // The element of a row that scrolls out is reused for the one that scrolls in.
                key={index % slots}
                item={item}
                index={index}
                columns={columns}
                tracks={tracks}
                top={index * rowHeight}
                address={addressOf?.(item)}
                isActive={index === active.current}
                isBrief={view.isFast}
                onFocus={onFocus}
              />
            );
          })}
        </div>
      </div>
      {rows.length === 0 && <p class="quiet empty">{items.length === 0 ? t.nothing : t.noMatch}</p>}
    </div>
  );
}

function leastRem(width: string): number {
  return Number(/[\d.]+(?=rem)/.exec(width)?.[0] ?? 0);
}

function ColumnHead({
  id,
  title,
  sort,
  isNumber,
  isPart,
}: {
  readonly id: string;
  readonly title: string;
  readonly sort: string;
  readonly isNumber: boolean;
  readonly isPart: boolean;
}) {
  const kind = isNumber ? "cell number" : "cell";
  if (isPart) {
    return (
      <div class={kind} role="columnheader">
        <span class="head-text">{title}</span>
      </div>
    );
  }
  const order = sort === id ? "ascending" : sort === `-${id}` ? "descending" : "none";
  // For numbers, the greatest are of interest first.
  const orders = isNumber ? [`-${id}`, id, ""] : [id, `-${id}`, ""];
  const next = orders[(orders.indexOf(order === "none" ? "" : sort) + 1) % orders.length] ?? "";
  return (
    <div class={kind} role="columnheader" aria-sort={order}>
      <button type="button" onClick={() => setQuery({ sort: next })}>
        {title}
        <span aria-hidden="true">{{ ascending: " ↑", descending: " ↓", none: "" }[order]}</span>
      </button>
    </div>
  );
}

function arrange<T>(
  items: readonly T[],
  columns: readonly Column<T>[],
  { filter, sort }: { readonly filter: string; readonly sort: string },
): readonly T[] {
  const words = filter
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  const found =
    words.length === 0
      ? items
      : items.filter((item) => {
          const text = columns
            .map(({ value }) => value(item) ?? "")
            .join(" ")
            .toLowerCase();
          return words.every((word) => text.includes(word));
        });
  const isDown = sort.startsWith("-");
  const column = columns.find(({ id }) => id === (isDown ? sort.slice(1) : sort));
  if (column === undefined) {
    return found;
  }
  const keyed = found.map((item) => ({ item, key: column.value(item) }));
  return keyed
    .sort((a, b) => {
      if (a.key === undefined || b.key === undefined) {
        return Number(a.key === undefined) - Number(b.key === undefined);
      }
      return compare(a.key, b.key) * (isDown ? -1 : 1);
    })
    .map(({ item }) => item);
}

const collator = new Intl.Collator("en", { numeric: true });

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
}
