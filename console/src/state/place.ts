// SPDX-License-Identifier: Apache-2.0

// The location of the page. The address is the state: views, filters and orders are in it and nowhere else.

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

/** Decodes a part of the address; an address that a user typed may be encoded badly. */
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

/** Returns the address of a view. */
export function addressOf(...path: readonly string[]): string {
  return base + path.map(encodeURIComponent).join("/");
}

export function go(address: string, { isNewEntry = true }: { readonly isNewEntry?: boolean } = {}): void {
  history[isNewEntry ? "pushState" : "replaceState"](null, "", address);
  place.set(read());
}

/** Changes the query; an empty value removes a key. */
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
