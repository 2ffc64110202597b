// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";
import { readInputFile } from "./input-file.ts";

/** The sources of a token, in order of precedence. */
export interface TokenSource {
  readonly token: string | undefined;
  /** `-`: standard input. */
  readonly tokenFile: string | undefined;
}

/**
 * Reads a token: from the command line, from a file, or from a terminal without echo.
 *
 * @throws MILLPOND_E_INVALID when there is none
 */
export async function readTokenInput({ token, tokenFile }: TokenSource): Promise<string> {
  if (tokenFile !== undefined)
    return checkToken(
      (await readInputFile(tokenFile, "token file")).trim(),
      `--token-file ${quote(tokenFile)}`,
    );
  if (token !== undefined) return checkToken(token, "--token or MILLPOND_TOKEN");
  if (!process.stdin.isTTY) {
    throw millpondError("MILLPOND_E_INVALID", "there is no token, and no terminal to ask for one", {
      remedy: "Give --token-file, --token or MILLPOND_TOKEN.",
    });
  }
  return checkToken(await askUnseen("Token: "), "the token");
}

function checkToken(text: string, source: string): string {
  if (/^[\x21-\x7e]{1,4096}$/.test(text)) return text;
  throw millpondError(
    "MILLPOND_E_INVALID",
    `${source}: a token is one word of at most 4096 printable characters; this value is not`,
  );
}

/** Reads a line from the terminal without echo. */
function askUnseen(question: string): Promise<string> {
  const { stdin, stderr } = process;
  stderr.write(question);
  stdin.setRawMode(true);
  stdin.setEncoding("utf8");
  return new Promise((resolve, reject) => {
    let line = "";
    const end = (): void => {
      stdin.setRawMode(false);
      stdin.pause();
      stdin.off("data", take);
      stderr.write("\n");
    };
    const take = (chunk: string): void => {
      for (const character of chunk) {
        if (character === "\r" || character === "\n") {
          end();
          resolve(line.trim());
          return;
        }
        if (character === "\u0003" || character === "\u0004") {
          end();
          reject(millpondError("MILLPOND_E_INVALID", "there is no token: it was not given"));
          return;
        }
        line = character === "\u007f" ? line.slice(0, -1) : line + character;
      }
    };
    stdin.on("data", take);
    stdin.resume();
  });
}
