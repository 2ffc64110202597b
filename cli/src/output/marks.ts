// SPDX-License-Identifier: Apache-2.0

const characters = { ok: "✔", info: "·", warning: "!", failure: "✘" } as const;

/** The character in front of a finding. `writeInLocale` uses another one if the locale requires it. */
export function markOf(status: keyof typeof characters): string {
  return characters[status];
}

/** Replacements for the characters of our texts where only ASCII can be shown. */
const ascii: Readonly<Record<string, string>> = {
  "✔": "+",
  "✘": "x",
  "·": "-",
  "…": "...",
  "×": "x",
  µ: "u",
  "�": "?",
  "⠋": "|",
  "⠙": "/",
  "⠹": "-",
  "⠸": "\\",
  "⠼": "|",
  "⠴": "/",
  "⠦": "-",
  "⠧": "\\",
  "⠇": "|",
  "⠏": "/",
};

const replaceable = new RegExp(`[${Object.keys(ascii).join("")}]`, "gu");

/** Replaces the characters of our own texts. Others, as in users' paths, stay as they are. */
export function toAscii(text: string): string {
  return text.replace(replaceable, (character) => ascii[character] ?? character);
}

/**
 * Whether the locale is explicitly `C` or `POSIX`. Without any locale, as in most containers, terminals still show UTF-8.
 */
export function isAsciiLocale(env: NodeJS.ProcessEnv): boolean {
  const locale = [env["LC_ALL"], env["LC_CTYPE"], env["LANG"]].find(
    (value) => value !== undefined && value !== "",
  );
  return locale === "C" || locale === "POSIX";
}

/**
 * Converts texts that are written to a stream from now on to ASCII in the locale `C`. Bytes, as from programs, pass
 * unchanged.
 */
export function writeInLocale(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv): void {
  if (!isAsciiLocale(env)) return;
  const write = stream.write.bind(stream) as (...args: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) =>
    write(typeof chunk === "string" ? toAscii(chunk) : chunk, ...rest);
}
