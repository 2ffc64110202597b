// SPDX-License-Identifier: Apache-2.0

// Where the page is. The address is the state: views, filters and orders are in it and nowhere else.

import { Store, useStore } from "./store.ts";

const base = "/console/";

export interface Place {
  /** `claims/train` is ["claims", "train"]; empty: the pool. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

function read(): Place {
  const inside = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : "";
  return {
    path: inside
      .split("/")
      .filter((part) => part !== "")
      .map(decode),
    query: new URLSearchParams(location.search),
  };
}

/** What somebody types need not be well encoded. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const place = new Store<Place>(read());
addEventListener("popstate", () => place.set(read()));

export function usePlace(): Place {
  return useStore(place);
}

/** The address of a view. */
export function addressOf(...path: readonly string[]): string {
  return base + path.map(encodeURIComponent).join("/");
}

export function go(address: string, { isNewEntry = true }: { readonly isNewEntry?: boolean } = {}): void {
  history[isNewEntry ? "pushState" : "replaceState"](null, "", address);
  place.set(read());
}

/** Changes the query; an empty value takes a key away. */
export function setQuery(changes: Readonly<Record<string, string>>): void {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === "") {
      query.delete(key);
    } else {
      query.set(key, value);
    }
  }
  const text = query.toString();
  go(location.pathname + (text === "" ? "" : `?${text}`), { isNewEntry: false });
}
