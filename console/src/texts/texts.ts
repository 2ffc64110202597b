// SPDX-License-Identifier: Apache-2.0

// Texts of the page. Messages of the controller, reasons above all, are shown as they are.

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

/** Returns the texts in the present language; the whole page is rendered again when the language changes. */
export function texts(): Texts {
  return languages[language.get()];
}
