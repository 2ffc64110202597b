// SPDX-License-Identifier: Apache-2.0

import { Store } from "./store.ts";

export const themeNames = ["auto", "light", "dark"] as const;
export type Theme = (typeof themeNames)[number];

const key = "millpond-theme";

export const theme = new Store<Theme>(
  themeNames.find((each) => each === localStorage.getItem(key)) ?? "auto",
);

function show(): void {
  // The style sheet has both variants of all colours.
  document.documentElement.dataset["theme"] = theme.get();
}
show();

export function setTheme(next: Theme = "auto"): void {
  localStorage.setItem(key, next);
  theme.set(next);
  show();
}
