// SPDX-License-Identifier: Apache-2.0
// Keeps secrets out of a support bundle. Members of configurations and logs are taken only where they are listed here; what is
// free text then loses the secrets that this host knows, and everything that has the form of one.

const removed = "[removed]";

/** Shorter texts would also match by chance. Tokens have at least 16 characters. */
const leastSecretLength = 8;

/** The forms of secrets, including those that this host does not know. */
const forms: readonly (readonly [RegExp, string])[] = [
  // Tokens of all kinds, and pool keys: `mp-admin-…`, `mp-claim-name.tenant.…`.
  [/\bmp-[a-z]+-[\w.:-]{12,}/gi, removed],
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[^]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, removed],
  // The password of a URL, and its query and fragment.
  [/(\b[a-z][a-z0-9+.-]*:\/\/)[^\s"'@/]*@/gi, `$1${removed}@`],
  [/(\bhttps?:\/\/[^\s"'?#]*)[?#][^\s"']*/gi, `$1?${removed}`],
  [/\b(bearer|basic)\s+[\w+/=.~-]{8,}/gi, `$1 ${removed}`],
  // `password=…`, `"clientSecret": "…"`, `token: …`.
  [
    /((?:password|passwd|secret|token|api_?key|private_?key|authorization|cookie)\w*["']?\s*[:=]\s*)(?:"[^"]*"|'[^']*'|[^\s,;}"']+)/gi,
    `$1${removed}`,
  ],
];

/** Removes secrets from texts. */
export class Redaction {
  readonly #known: RegExp | undefined;

  /** @param secrets all secrets known on this host */
  constructor(secrets: Iterable<string>) {
    const spellings = new Set<string>();
    for (const secret of secrets) {
      const text = secret.trim();
      if (text.length < leastSecretLength) continue;
      spellings.add(text);
      spellings.add(encodeURIComponent(text));
      spellings.add(JSON.stringify(text).slice(1, -1));
      spellings.add(Buffer.from(text).toString("base64"));
    }
    // A secret that contains another one is replaced first.
    const sorted = [...spellings].sort((one, other) => other.length - one.length);
    this.#known = sorted.length === 0 ? undefined : new RegExp(sorted.map(escape).join("|"), "g");
  }

  clean(text: string): string {
    const unknown = this.#known === undefined ? text : text.replace(this.#known, removed);
    return forms.reduce((rest, [form, replacement]) => rest.replace(form, replacement), unknown);
  }
}

function escape(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, String.raw`\$&`);
}

/** Options of services whose values are shown. For all others, such as `store`, the bundle shows only that they are given. */
export const shownOptions: Readonly<Record<"controller" | "agent", ReadonlySet<string>>> = {
  controller: new Set([
    "listen",
    "state",
    "advertise",
    "ca",
    "tlsCert",
    "tlsKey",
    "tlsNames",
    "keyFile",
    "auditLog",
    "auditLogRequired",
    "ownAgentTokensOnly",
    "changesPerSecond",
    "webhooks",
    "oidc",
    "logLevel",
  ]),
  agent: new Set([
    "controller",
    "tokenFile",
    "metricsTokenFile",
    "ca",
    "name",
    "listen",
    "workerPorts",
    "advertise",
    "encrypt",
    "labels",
    "warm",
    "drain",
    "reconnectGrace",
    "driver",
    "worker",
    "run",
    "workerUsers",
    "workerUser",
    "claimHostMemory",
    "sessionOverhead",
    "trustPageableAccess",
  ]),
};

export function shownSettings(
  service: "controller" | "agent",
  texts: Readonly<Record<string, string>>,
): Record<string, string> {
  const shown = shownOptions[service];
  return Object.fromEntries(
    Object.entries(texts).map(([key, text]) => [key, shown.has(key) ? text : "(given, not shown)"]),
  );
}

/** Members of a service's log lines that are shown. */
const shownMembers: ReadonlySet<string> = new Set([
  "address",
  "claim",
  "code",
  "controller",
  "device",
  "epoch",
  "err",
  "level",
  "message",
  "method",
  "ms",
  "msg",
  "node",
  "part",
  "pid",
  "reason",
  "session",
  "stack",
  "status",
  "term",
  "time",
  "type",
  "worker",
]);

/** Returns a log in which each line of JSON has only the members that may be shown; other lines stay as they are. */
export function shownLog(text: string): string {
  return text
    .split("\n")
    .map((line) => {
      if (!line.startsWith("{")) return line;
      try {
        return JSON.stringify(JSON.parse(line), (key, value: unknown) =>
          key === "" || /^\d+$/.test(key) || shownMembers.has(key) ? value : "(not shown)",
        );
      } catch {
        // Truncated at its beginning or its end, so that its members are unknown.
        return "(a line that is not complete)";
      }
    })
    .join("\n");
}
