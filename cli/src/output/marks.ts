// SPDX-License-Identifier: Apache-2.0

const characters = { ok: ["✔", "+"], info: ["·", "-"], warning: ["!", "!"], failure: ["✘", "x"] } as const;

/**
 * The character in front of a finding. ASCII where the locale is explicitly `C` or `POSIX`; without any locale, as in
 * most containers, terminals still show UTF-8.
 */
export function markOf(status: keyof typeof characters, env: NodeJS.ProcessEnv): string {
  const locale = [env["LC_ALL"], env["LC_CTYPE"], env["LANG"]].find(
    (value) => value !== undefined && value !== "",
  );
  const [utf8, ascii] = characters[status];
  return locale === "C" || locale === "POSIX" ? ascii : utf8;
}
