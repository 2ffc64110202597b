// SPDX-License-Identifier: Apache-2.0

import { Writable } from "node:stream";
import { expect, test } from "vitest";
import { isAsciiLocale, markOf, toAscii, writeInLocale } from "./marks.ts";

test.each([
  [{}, false],
  [{ LANG: "C" }, true],
  [{ LANG: "POSIX" }, true],
  [{ LANG: "C.UTF-8" }, false],
  [{ LANG: "C", LC_ALL: "de_DE.UTF-8" }, false],
  [{ LANG: "de_DE.UTF-8", LC_ALL: "", LC_CTYPE: "C" }, true],
])("in the locale of %j, texts are in ASCII: %s", (env, isAscii) => {
  expect(isAsciiLocale(env)).toBe(isAscii);
});

test("texts have ASCII for our characters, and bytes and other characters pass", () => {
  expect(toAscii(`${markOf("ok")} 2 × Software GPU, 3.1 µs, a long te… für ${markOf("failure")}`)).toBe(
    "+ 2 x Software GPU, 3.1 us, a long te... für x",
  );
  const write = (env: NodeJS.ProcessEnv): string => {
    const chunks: string[] = [];
    const stream = new Writable({
      write: (chunk, _, done) => {
        chunks.push(String(chunk));
        done();
      },
    });
    writeInLocale(stream as unknown as NodeJS.WriteStream, env);
    stream.write("2 × a ");
    stream.write(Buffer.from("2 × b"));
    return chunks.join("");
  };
  expect(write({ LANG: "C" })).toBe("2 x a 2 × b");
  expect(write({ LANG: "en_US.UTF-8" })).toBe("2 × a 2 × b");
});
