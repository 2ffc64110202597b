// SPDX-License-Identifier: Apache-2.0

// Random command lines from the table of commands, with arguments, files, variables, terminals and controllers that are not as
// they should be.

import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import * as fc from "fast-check";
import type { ArgumentSpec, CommandName, OptionSpec, ValueType } from "../src/command-table/command-table.ts";
import { commandSpecs } from "../src/command-table/command-table.ts";

/** A command line with its surroundings. */
export interface HostileCommand {
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly input: string;
  /** Where standard output goes. */
  readonly output: "pipe" | "full" | "closed";
  /** Time until it is interrupted, as by Ctrl-C. */
  readonly patienceMs: number;
  /** Shell commands before it, in the same shell. */
  readonly before: string;
}

/** Begins the title of a terminal's window, if it is printed as it is. */
export const escapeSequence = "\u001B]0;";

const texts: readonly string[] = [
  "",
  " ",
  "-",
  "--",
  "-1",
  "0",
  "1e309",
  "NaN",
  "99999999999999999999999",
  "0x10",
  "１",
  `${escapeSequence}title\u0007`,
  "two\nlines",
  "\r",
  "\u202Eright to left",
  "\u{1F600}".repeat(50),
  "x".repeat(100_000),
  "../../../etc/passwd",
  "%s%n%x",
  "__proto__",
  "constructor",
  "toString",
  "hasOwnProperty",
  "$(id)",
  "a=b",
  "=,=,",
  ",",
  "*",
  "{",
  "[",
  "a..b",
  "key=__proto__",
  "__proto__=x",
  "\uD800",
  "node-a/99",
  "node-a/-1",
  "node-a/",
  "/",
  "5-1",
  "1-99999999999",
  "999999999d",
  "-5s",
  "9999-99-99",
  "soft,soft,",
];

const urls: readonly string[] = [
  "http://",
  "https://[::1",
  "ftp://example.org",
  "file:///etc/passwd",
  "http://127.0.0.1:99999",
  "http://127.0.0.1:1,",
  "https://127.0.0.1:1/path?query#fragment",
  "http://\u00FCmlaut.invalid:1",
  "postgres://",
  "postgres://nobody@127.0.0.1:1/none",
  "mysql://x",
  "javascript:alert(1)",
];

/** Valid values, so that what is wrong elsewhere on the command line is reached. */
const valid: { readonly [T in Exclude<ValueType, "flag" | "choice">]: readonly string[] } = {
  text: ["train", "1", "1,2", "name=x", "metadata.name"],
  count: ["1", "2"],
  number: ["0", "1"],
  memory: ["64Mi", "50%"],
  size: ["64Mi", "1Gi"],
  percent: ["10%", "0.5"],
  fraction: ["0.1", "5%"],
  duration: ["1s", "0"],
  period: ["1s", "1m"],
  name: ["train", "default"],
  "node-name": ["node-a", "node-b"],
  integer: ["-5", "10"],
  members: ["2"],
  list: ["memcheck", "name,uuid", "a,b"],
  version: ["13.0"],
  labels: ["zone=b"],
  quota: ["gpus=1", "none"],
  weight: ["1"],
  lines: ["0", "10"],
};

const positional: Readonly<Record<string, readonly string[]>> = {
  program: ["true", "false", "/nonexistent", ".", "/etc/passwd"],
  controller: urls,
  job: ["train", "none"],
  device: ["node-a/0", "node-a/7"],
  "name or device": ["node-a", "node-a/0"],
};

/** Options that would leave processes behind, or a browser. */
const left = new Set(["detach", "oidc"]);

export interface Surroundings {
  /** Files and folders whose names a command line may give. */
  readonly files: readonly string[];
  /** URLs of the pool, and of servers that are not what they should be. */
  readonly controllers: readonly string[];
  readonly token: string;
}

/** Makes files that are not what anybody expects, and returns their paths. */
export function makeFiles(folder: string, owner: number): readonly string[] {
  const contents: Readonly<Record<string, string | Buffer>> = {
    empty: "",
    text: "something else\n",
    binary: Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 7919) % 256)),
    nul: "\0\0\0\0",
    utf16: Buffer.from("\uFEFFkind: claim\n", "utf16le"),
    "not-utf8.yaml": Buffer.from([0x6e, 0x61, 0x6d, 0x65, 0x3a, 0x20, 0xff, 0xfe, 0x0a]),
    "deep.yaml": "[".repeat(20_000),
    "deep.json": `${'{"a":'.repeat(20_000)}1${"}".repeat(20_000)}`,
    "aliases.yaml": `a: &a [x,x,x,x,x,x,x,x,x]\n${Array.from("bcdefghi", (name, index) => {
      const before = "abcdefgh"[index] ?? "a";
      return `${name}: &${name} [${Array.from({ length: 9 }, () => `*${before}`).join()}]\n`;
    }).join("")}`,
    "list.yaml": "- 1\n- 2\n",
    "null.json": "null",
    "number.json": "1e400",
    "proto.json": '{"__proto__": {"kind": "claim"}, "constructor": 1}',
    "claim.yaml": "kind: Claim\nname: train\ngpus: -1\n",
    "claims.yaml": "---\n---\nkind: Claim\n---\n!!binary x\n",
    "tagged.yaml": "!!js/function 'x'\n",
    "openb_pod_list_x.csv": "name,cpu_milli\n,,,\n\u0000\n",
    "pod.csv": '"',
    "certificate.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "trace.millpond": '{"version":1}\n{"x":\n',
    "long-line": "x".repeat(2_000_000),
  };
  mkdirSync(folder, { recursive: true });
  const paths = Object.entries(contents).map(([name, content]) => {
    const path = join(folder, name);
    writeFileSync(path, content);
    chownSync(path, owner, owner);
    return path;
  });
  for (const name of ["folder", "closed"]) {
    mkdirSync(join(folder, name));
    chownSync(join(folder, name), owner, owner);
  }
  const secret = join(folder, "secret");
  writeFileSync(secret, "of another user\n", { mode: 0o600 });
  // Without root there is no other user: the file is one without permissions.
  if (owner === process.getuid?.()) chmodSync(secret, 0);
  symlinkSync("loop", join(folder, "loop"));
  symlinkSync("/dev/full", join(folder, "full"));
  symlinkSync("/dev/zero", join(folder, "endless"));
  chmodSync(join(folder, "closed"), 0);
  const others = [
    "folder",
    "closed",
    "closed/x",
    "secret",
    "loop",
    "full",
    "endless",
    "new",
    "missing/x",
    "text/x",
  ];
  return [...paths, ...others.map((name) => join(folder, name)), folder, "/dev/null", "/proc/self/mem", "."];
}

/** Servers that answer a controller's clients in ways that no controller does. */
export async function startOddServers(): Promise<{
  readonly urls: readonly string[];
  readonly servers: Server[];
}> {
  const page = "<html>503</html>";
  const answers: readonly ((write: (data: string) => void, end: () => void) => void)[] = [
    (_, end) => end(),
    () => undefined,
    (write) => write("\u0000\u0001\u0002 not HTTP\r\n\r\n"),
    (write, end) => {
      write(
        `HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/html\r\ncontent-length: ${page.length}\r\n\r\n${page}`,
      );
      end();
    },
    (write, end) => {
      write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n{");
      end();
    },
    (write, end) => {
      write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"nodes":[17]}');
      end();
    },
    (write, end) => {
      write("HTTP/1.1 307 Temporary Redirect\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n");
      end();
    },
  ];
  const servers = answers.map((answer) =>
    createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => {
        answer(
          (data) => void socket.write(data, "latin1"),
          () => void socket.end(),
        );
      });
    }),
  );
  const found = await Promise.all(
    servers.map(
      (server) =>
        new Promise<string>((resolve) => {
          server.listen(0, "127.0.0.1", () => {
            const address = server.address();
            resolve(`http://127.0.0.1:${typeof address === "object" ? (address?.port ?? 0) : 0}`);
          });
        }),
    ),
  );
  return { urls: [...found, ...found.slice(0, 2).map((url) => url.replace("http:", "https:"))], servers };
}

function valueOf(spec: OptionSpec, { files, controllers }: Surroundings): fc.Arbitrary<string> {
  const hostile = fc.constantFrom(...texts);
  if (spec.type === "flag") return fc.constant("");
  if (spec.type === "choice") {
    const choices = (spec.choices ?? []).map((choice) => choice.replace("<path>", "{.items[*].name}"));
    return fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...choices) }, { weight: 1, arbitrary: hostile });
  }
  const isFile = /<(?:file|dir|folder|path|files|libs)>/.test(spec.flags);
  const isUrl = /<url>/.test(spec.flags);
  return fc.oneof(
    { weight: isFile || isUrl ? 1 : 3, arbitrary: fc.constantFrom(...valid[spec.type]) },
    { weight: 2, arbitrary: hostile },
    ...(isFile ? [{ weight: 6, arbitrary: fc.constantFrom(...files) }] : []),
    ...(isUrl ? [{ weight: 6, arbitrary: fc.constantFrom(...controllers, ...urls) }] : []),
  );
}

function argumentOf(spec: ArgumentSpec, surroundings: Surroundings): fc.Arbitrary<readonly string[]> {
  const usual = spec.choices ?? positional[spec.name] ?? ["train", "node-a", "default", "node-a/0", "ann"];
  const one = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(...usual) },
    { weight: 2, arbitrary: fc.constantFrom(...texts) },
    ...(spec.isFiles === true || spec.name === "file" || spec.name === "backup"
      ? [{ weight: 9, arbitrary: fc.constantFrom(...surroundings.files) }]
      : []),
  );
  if (spec.isFiles === true || spec.isProgram === true) return fc.array(one, { minLength: 0, maxLength: 3 });
  return fc.oneof(
    { weight: 8, arbitrary: one.map((text) => [text]) },
    { weight: 1, arbitrary: fc.constant<readonly string[]>([]) },
    { weight: 1, arbitrary: fc.array(one, { minLength: 2, maxLength: 3 }) },
  );
}

function optionOf(spec: OptionSpec, surroundings: Surroundings): fc.Arbitrary<readonly string[]> {
  const names = spec.flags.match(/--?[a-z-]+/gi) ?? [];
  return fc
    .tuple(fc.constantFrom(...names), valueOf(spec, surroundings), fc.nat(9))
    .map(([name, value, form]) => {
      if (spec.type === "flag") return form === 0 ? [`${name}=1`] : [name];
      if (form === 0) return [name];
      return form < 4 && name.startsWith("--") ? [`${name}=${value}`] : [name, value];
    });
}

function faultsOf({
  files,
  controllers,
}: Surroundings): fc.Arbitrary<Readonly<Record<string, string | undefined>>> {
  const file = fc.constantFrom(...files);
  const text = fc.constantFrom(...texts);
  return fc
    .uniqueArray(
      fc.oneof(
        fc.tuple(
          fc.constantFrom("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "MILLPOND_CONFIG"),
          file,
        ),
        fc.tuple(fc.constantFrom("MILLPOND_NATIVE_DIR", "MILLPOND_CA", "XDG_RUNTIME_DIR"), file),
        fc.tuple(
          fc.constantFrom("MILLPOND_TOKEN", "MILLPOND_CONTEXT", "MILLPOND_NAME", "MILLPOND_MEMORY"),
          text,
        ),
        fc.tuple(fc.constant("MILLPOND_CONTROLLER"), fc.constantFrom(...controllers, ...urls)),
        fc.tuple(fc.constant("COLUMNS"), fc.constantFrom("0", "1", "-5", "x", "999999999")),
        fc.tuple(fc.constant("LC_ALL"), fc.constantFrom("C", "xx_YY.utf8", "", "de_DE.ISO-8859-1")),
        fc.tuple(fc.constant("TERM"), fc.constantFrom("dumb", "", "x/../y")),
        fc.constantFrom(
          ["NO_COLOR", "1"] as const,
          ["FORCE_COLOR", "3"] as const,
          ["TZ", "No/Where"] as const,
        ),
        fc.constantFrom(["PATH", ""] as const, ["HOME", undefined] as const, ["HOME", ""] as const),
      ),
      { maxLength: 2, selector: ([name]) => name },
    )
    .map((pairs) => Object.fromEntries(pairs));
}

/** Command lines of all commands, or of those given. */
export function hostileCommands(
  surroundings: Surroundings,
  names: readonly CommandName[],
): fc.Arbitrary<HostileCommand> {
  const line = fc.constantFrom(...names).chain((name) => {
    const spec = commandSpecs[name];
    const options = Object.entries(spec.options)
      .filter(([key]) => !left.has(key))
      .map(([, option]) => option);
    const some =
      options.length === 0
        ? fc.constant<readonly string[]>([])
        : fc
            .array(
              fc.constantFrom(...options).chain((option) => optionOf(option, surroundings)),
              { maxLength: 4 },
            )
            .map((each) => each.flat());
    const positionals = fc
      .tuple(...spec.arguments.map((argument) => argumentOf(argument, surroundings)))
      .map((each) => each.flat());
    return fc
      .tuple(some, positionals, fc.nat(19))
      .map(([given, rest, extra]) => [
        name,
        ...given,
        ...(extra === 0 ? ["--frobnicate"] : []),
        ...(spec.arguments.some(({ isProgram }) => isProgram) && extra > 2 ? ["--"] : []),
        ...rest,
      ]);
  });
  return fc.record({
    args: line.map((args) => args.map((text) => text.replaceAll("\0", ""))),
    environment: faultsOf(surroundings),
    input: fc.constantFrom("", "", "x\n", "\u0000\n", surroundings.token, "{", "y\n".repeat(10_000)),
    output: fc.constantFrom<HostileCommand["output"]>(
      "pipe",
      "pipe",
      "pipe",
      "pipe",
      "pipe",
      "full",
      "closed",
    ),
    patienceMs: fc.constantFrom(200, 500, 1_000, 2_000, 4_000, 4_000, 4_000),
    before: fc.constantFrom(
      "",
      "",
      "",
      "",
      "",
      "",
      "ulimit -f 0",
      "ulimit -n 40",
      'mkdir "$PWD/gone$$" && cd "$PWD/gone$$" && rmdir "$PWD"',
    ),
  });
}
