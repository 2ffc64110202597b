// SPDX-License-Identifier: Apache-2.0

/** What one look found. */
export interface Finding {
  /** `info` is worth knowing and no fault. */
  readonly status: "ok" | "info" | "warning" | "failure";
  /** What was looked at, two or three words. */
  readonly name: string;
  /** What was found. */
  readonly detail: string;
  /** How to repair it; empty when there is nothing to repair. */
  readonly fix: string;
}

export function ok(name: string, detail: string): Finding {
  return { status: "ok", name, detail, fix: "" };
}

export function info(name: string, detail: string): Finding {
  return { status: "info", name, detail, fix: "" };
}

export function warning(name: string, detail: string, fix: string): Finding {
  return { status: "warning", name, detail, fix };
}

export function failure(name: string, detail: string, fix: string): Finding {
  return { status: "failure", name, detail, fix };
}
