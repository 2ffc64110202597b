// SPDX-License-Identifier: Apache-2.0

import { ConnectError } from "@connectrpc/connect";
import {
  type ErrorCode,
  errorCodeOf,
  errorTable,
  exitStatusOf,
  millpondError,
  remedyOf,
} from "@millpond/api";

/** An error with an exit status of its own. */
export class ExitError extends Error {
  override readonly name = "ExitError";
  readonly status: number;
  /** The error to print; absent: it has already been printed, or there is none. */
  override readonly cause: ConnectError | undefined;

  constructor(status: number, cause?: ConnectError) {
    super(cause?.rawMessage ?? "");
    this.status = status;
    this.cause = cause;
  }
}

/** The three parts of an error message. */
export interface ErrorParts {
  readonly what: string;
  readonly remedy: string;
  readonly code: ErrorCode;
}

/** Splits an error into its parts for printing. An error without a code is MILLPOND_E_INTERNAL. */
export function errorParts(error: unknown): ErrorParts {
  const code = errorCodeOf(error);
  const message = messageOf(error);
  if (code === undefined) {
    const remedy = systemRemedy(error);
    if (remedy !== undefined) return { what: message, remedy, code: "MILLPOND_E_INVALID" };
    return { what: message, remedy: errorTable.MILLPOND_E_INTERNAL.remedy, code: "MILLPOND_E_INTERNAL" };
  }
  const text = message.slice(0, message.length - code.length - 3);
  const usual = remedyOf(error) || errorTable[code].remedy;
  const split = text.endsWith(`. ${usual}`) ? text.length - usual.length - 2 : text.search(/\. \p{Lu}/u);
  return split < 0
    ? { what: text, remedy: usual, code }
    : { what: text.slice(0, split), remedy: text.slice(split + 2), code };
}

/** What to do about an error of the operating system that a command did not expect; undefined: it is none. */
function systemRemedy(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("syscall" in error) || !("code" in error)) return undefined;
  switch (error.code) {
    case "ENOSPC":
    case "EDQUOT":
    case "EFBIG":
      return "Free disk space, or raise the limit, and try again.";
    case "EMFILE":
    case "ENFILE":
      return "Raise the limit of open files (`ulimit -n`), and try again.";
    case "EAGAIN":
    case "ENOMEM":
      return "Raise the limit of processes or memory (`ulimit -u`, `ulimit -v`), and try again.";
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return "Use a user with the permission, or another path.";
    case "ENOENT":
    case "ENOTDIR":
    case "EISDIR":
    case "EEXIST":
    case "ELOOP":
    case "ENAMETOOLONG":
      return "Correct the path.";
    default:
      return undefined;
  }
}

/** Prints an error to standard error and returns its exit status. */
export function reportError(error: unknown): number {
  const shown = error instanceof ExitError ? error.cause : error;
  if (error instanceof ExitError && shown === undefined) return error.status;
  const { what, remedy, code } = errorParts(shown);
  const status = error instanceof ExitError ? error.status : exitStatusOf(code);
  // The usual remedy for an invalid value adds nothing to the message.
  const isSaid = code === "MILLPOND_E_INVALID" && remedy === errorTable[code].remedy;
  process.stderr.write(`error: ${what}\n${isSaid ? "" : `  ${remedy}\n`}  [${code}]\n`);
  if (process.env["MILLPOND_DEBUG"] === "1" && shown instanceof Error) {
    process.stderr.write(`${shown.stack ?? ""}\n`);
    for (let cause = shown.cause; cause instanceof Error; cause = cause.cause) {
      process.stderr.write(`caused by ${cause.stack ?? cause.message}\n`);
    }
  }
  return status;
}

/** Returns the same error with its subject in front: `--memory: "9x" is not a size…`. */
export function prefixError(error: unknown, prefix: string): ConnectError {
  const { what, remedy, code } = errorParts(error);
  return millpondError(code, `${prefix}: ${what}`, { remedy, cause: error });
}

function messageOf(error: unknown): string {
  if (error instanceof ConnectError) return error.rawMessage;
  return error instanceof Error ? error.message : String(error);
}
