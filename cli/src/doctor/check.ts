// SPDX-License-Identifier: Apache-2.0

/** The result of one check. */
export interface Finding {
  /** `info` is worth knowing but not a fault. */
  readonly status: "ok" | "info" | "warning" | "failure";
  /** Subject of the check, in two or three words. */
  readonly name: string;
  /** The result. */
  readonly detail: string;
  /** How to repair it; empty if unnecessary. */
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
