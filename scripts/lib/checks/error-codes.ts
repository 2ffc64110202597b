// SPDX-License-Identifier: Apache-2.0
// Error codes in native code come from the table in api/src/errors.ts, by way of native/base/errors/gen/error_codes.h.
import type { SourceFile } from "./import-rules.ts";

/** Tests write codes literally, because they check messages as users see them. */
const exempt = /(^|\/)(gen|testing|tests|attacks)\/|_test\.cpp$/;

/**
 * @param files of native code.
 * @returns faults, one line each
 */
export function findWrittenCodes(files: readonly SourceFile[]): string[] {
  return files.flatMap(({ path, text }) => {
    const code = exempt.test(path) ? undefined : /MILLPOND_E_[A-Z_]+/.exec(text)?.[0];
    return code === undefined ? [] : [`${path} has ${code} as text: use base/errors/coded_error.h`];
  });
}
