// SPDX-License-Identifier: Apache-2.0

// Texts of the page. Messages from the controller, above all reasons, are shown unchanged.

import { Store } from "../state/store.ts";
import { english, type Texts } from "./english.ts";

/** The languages by their own names. */
export const languages = { en: english.language, zh: "中文" } as const;
export type Language = keyof typeof languages;

const key = "millpond-language";

const loaded = new Map<Language, Texts>([["en", english]]);

/** A browser loads only the language that its user reads. */
async function load(wanted: Language): Promise<void> {
  if (!loaded.has(wanted)) {
    loaded.set(wanted, (await import("./chinese.ts")).chinese);
  }
}

export const language = new Store<Language>("en");

/** Shows the page in the language that the user chose, or that of the browser. The page is rendered afterwards. */
export async function startLanguage(): Promise<void> {
  const asked = localStorage.getItem(key) ?? navigator.language;
  await show(asked.startsWith("zh") ? "zh" : "en");
}

export async function setLanguage(next: Language): Promise<void> {
  localStorage.setItem(key, next);
  await show(next);
}

async function show(next: Language): Promise<void> {
  try {
    await load(next);
  } catch (error) {
    // For example after an upgrade of the controller: the page stays in its present language.
    reportError(error);
    return;
  }
  document.documentElement.lang = next;
  language.set(next);
}

/** Returns the texts in the present language; the whole page is rendered again when the language changes. */
export function texts(): Texts {
  return loaded.get(language.get()) ?? english;
}
