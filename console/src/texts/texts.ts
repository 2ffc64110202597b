// SPDX-License-Identifier: Apache-2.0

// Texts of the page. What the controller says, reasons above all, is shown in its own words.

import { Store } from "../state/store.ts";
import { chinese } from "./chinese.ts";
import { english, type Texts } from "./english.ts";

export const languages = { en: english, zh: chinese } as const;
export type Language = keyof typeof languages;

const key = "millpond-language";

function first(): Language {
  const asked = localStorage.getItem(key) ?? navigator.language;
  return asked.startsWith("zh") ? "zh" : "en";
}

export const language = new Store<Language>(first());
document.documentElement.lang = language.get();

export function setLanguage(next: Language): void {
  localStorage.setItem(key, next);
  document.documentElement.lang = next;
  language.set(next);
}

/** In the language of the moment; the whole page is drawn anew when that changes. */
export function texts(): Texts {
  return languages[language.get()];
}
