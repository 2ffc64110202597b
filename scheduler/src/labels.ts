// SPDX-License-Identifier: Apache-2.0

/** Labels by key. */
export type Labels = Readonly<Record<string, string>>;
