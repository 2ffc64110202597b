// SPDX-License-Identifier: Apache-2.0

// A row of the one table component.

import { Component, type ComponentChildren } from "preact";
import { texts } from "../texts/texts.ts";
import { Link } from "./link.tsx";

export interface Column<T> {
  readonly id: string;
  readonly title: string;
  /** A track of a CSS grid, in rem: `8rem`, `minmax(10rem, 2fr)`. */
  readonly width: string;
  readonly isNumber?: boolean;
  /** The value for sorting, filtering and exporting; undefined: unknown, which is sorted last. */
  readonly value: (item: T) => string | number | undefined;
  /** The cell's content; default: the value. */
  readonly cell?: (item: T) => ComponentChildren;
}

interface Properties<T> {
  readonly item: T;
  readonly index: number;
  readonly columns: readonly Column<T>[];
  /** The grid's tracks, the same for all rows. */
  readonly tracks: { readonly gridTemplateColumns: string; readonly minWidth: string };
  /** From the top of the first row, in pixels. */
  readonly top: number;
  /** The link of the first cell. */
  readonly address: string | undefined;
  /** Its link is the one that the tab key reaches. */
  readonly isActive: boolean;
  /** Draws the first cell only, because the rows pass too fast to be read. */
  readonly isBrief: boolean;
  readonly onFocus: (index: number) => void;
}

/** Rendered again only if a property changes: scrolling changes the rows that come in. */
export class Row<T> extends Component<Properties<T>> {
  override shouldComponentUpdate(next: Properties<T>): boolean {
    const keys = Object.keys(next) as (keyof Properties<T>)[];
    return keys.some((key) => next[key] !== this.props[key]);
  }

  override render() {
    const { item, index, columns, tracks, top, address, isActive, isBrief, onFocus } = this.props;
    const contentOf = (column: Column<T>) => column.cell?.(item) ?? column.value(item) ?? texts().unknown;
    return (
      <div
        class="row"
        role="row"
        aria-rowindex={index + 2}
        data-row={index}
        style={{ ...tracks, transform: `translateY(${top}px)` }}
      >
        {columns.map((column, position) => (
          <div class={column.isNumber ? "cell number" : "cell"} role="cell" key={column.id}>
            {position === 0 && address !== undefined ? (
              <Link to={address} tabIndex={isActive ? 0 : -1} onFocus={() => onFocus(index)}>
                {contentOf(column)}
              </Link>
            ) : (
              (position === 0 || !isBrief) && contentOf(column)
            )}
          </div>
        ))}
      </div>
    );
  }
}
