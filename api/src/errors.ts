// SPDX-License-Identifier: Apache-2.0

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "./gen/millpond/v1/error_pb.ts";
import type { ReasonSchema } from "./gen/millpond/v1/reason_pb.ts";

interface ErrorDefinition {
  /** The Connect and gRPC code of the error. */
  readonly connect: Code;
  /** The meaning, in one sentence. */
  readonly meaning: string;
  /** The remedy, one sentence in the imperative. Used unless the code that raises the error gives a more specific one. */
  readonly remedy: string;
}

/**
 * Every error that Millpond shows to users. `docs/reference/errors.md` is generated from this table (`npm run generate -w
 * api`). The meaning of a code never changes, and a removed code is never used again.
 */
export const errorTable = {
  MILLPOND_E_INVALID: {
    connect: Code.InvalidArgument,
    meaning: "An argument, an option or a field of a request is malformed or out of range.",
    remedy: "Correct the value that the message names and try again.",
  },
  MILLPOND_E_NOT_CONFIGURED: {
    connect: Code.FailedPrecondition,
    meaning: "The program knows no controller.",
    remedy: "Start it with `millpond run -- ...`, or set MILLPOND_CONTROLLER.",
  },
  MILLPOND_E_UNAUTHENTICATED: {
    connect: Code.Unauthenticated,
    meaning: "The request carries no token, or one that the controller does not know.",
    remedy:
      "Set MILLPOND_TOKEN to a token created by an administrator, or to the one in the controller's state directory.",
  },
  MILLPOND_E_FORBIDDEN: {
    connect: Code.PermissionDenied,
    meaning: "The token is valid, but its role may not call this method.",
    remedy: "Use the token of the role that the message names.",
  },
  MILLPOND_E_NOT_FOUND: {
    connect: Code.NotFound,
    meaning: "No object has that name.",
    remedy: "List what exists with `millpond get claims` or `millpond get nodes`.",
  },
  MILLPOND_E_ALREADY_EXISTS: {
    connect: Code.AlreadyExists,
    meaning: "The name is in use, or belonged to a recently ended claim.",
    remedy: "Choose another name, or omit it to get a generated one.",
  },
  MILLPOND_E_IN_USE: {
    connect: Code.FailedPrecondition,
    meaning: "Claims or other objects still need it.",
    remedy: "Release or move what the message names first.",
  },
  MILLPOND_E_IMPOSSIBLE: {
    connect: Code.FailedPrecondition,
    meaning: "No node of the pool could hold the claim, even if it were empty.",
    remedy: "Request fewer or smaller vGPUs, or omit the constraint that the message names.",
  },
  MILLPOND_E_NO_CAPACITY: {
    connect: Code.ResourceExhausted,
    meaning: "The pool has no capacity for the claim now, and the caller did not wait.",
    remedy: "Request less, or wait for capacity.",
  },
  MILLPOND_E_TOO_MANY_CLAIMS: {
    connect: Code.ResourceExhausted,
    meaning: "The limit of pending and dormant claims of the tenant is reached.",
    remedy: "Release claims that are no longer needed, or try again later.",
  },
  MILLPOND_E_TOO_MANY_CALLS: {
    connect: Code.ResourceExhausted,
    meaning: "The limit of calls of a token or a tenant is reached.",
    remedy: "Call less often, or from fewer programs at a time.",
  },
  MILLPOND_E_AUDIT_LOG: {
    connect: Code.Unavailable,
    meaning:
      "The audit log of the controller cannot be written, and the controller makes no change without it.",
    remedy:
      "Make the file of `--audit-log` writable, or start the controller without `--audit-log-required`.",
  },
  MILLPOND_E_TOO_MANY_TOKENS: {
    connect: Code.ResourceExhausted,
    meaning: "The limit of tokens is reached, of the tenant or of the pool.",
    remedy: "Revoke tokens that are no longer used.",
  },
  MILLPOND_E_TOO_MANY_SESSIONS: {
    connect: Code.ResourceExhausted,
    meaning:
      "The claim cannot have another session: it has 16 for each of its vGPUs, or no memory left for another one.",
    remedy: "End some of its programs, give it more memory, or create another claim for the others.",
  },
  MILLPOND_E_WAIT_TIMEOUT: {
    connect: Code.DeadlineExceeded,
    meaning: "The pool had no capacity for the claim within the caller's timeout.",
    remedy: "Wait longer, or request less.",
  },
  MILLPOND_E_CLAIM_NOT_BOUND: {
    connect: Code.FailedPrecondition,
    meaning: "The claim is pending or dormant and holds no vGPUs to attach to.",
    remedy: "Wait until the claim is bound; WaitClaim with `wake` wakes a dormant one.",
  },
  MILLPOND_E_CLAIM_ENDED: {
    connect: Code.FailedPrecondition,
    meaning: "The claim has ended: it was released, or its lease expired.",
    remedy: "Create a new claim.",
  },
  MILLPOND_E_NODE_NOT_READY: {
    connect: Code.Unavailable,
    meaning: "The controller has lost contact with the agent of the node that holds the allocation.",
    remedy: "Check the agent on that node with `millpond doctor`, and try again.",
  },
  MILLPOND_E_DEVICE_UNHEALTHY: {
    connect: Code.Unavailable,
    meaning: "A device of the allocation is unhealthy or missing.",
    remedy: "Release the claim and create a new one.",
  },
  MILLPOND_E_NODE_NAME_TAKEN: {
    connect: Code.AlreadyExists,
    meaning: "Another connected agent uses this node name.",
    remedy: "Stop that agent, or give this one another --name.",
  },
  MILLPOND_E_NODE_REMOVED: {
    connect: Code.PermissionDenied,
    meaning: "The node was removed from the pool, and the agent's token is older than that.",
    remedy:
      "Stop this agent. To join again, start it with a new token: `millpond token create NAME --role agent --node NODE`.",
  },
  MILLPOND_E_TICKET_INVALID: {
    connect: Code.Unauthenticated,
    meaning: "The ticket is malformed, or was not signed by this pool's controller.",
    remedy: "Get a new ticket from the agent's controller.",
  },
  MILLPOND_E_TICKET_EXPIRED: {
    connect: Code.Unauthenticated,
    meaning: "The ticket has expired.",
    remedy: "Get a new ticket; if this repeats, compare the clocks of the controller and the node.",
  },
  MILLPOND_E_TICKET_NOT_YET_VALID: {
    connect: Code.Unauthenticated,
    meaning: "The ticket's issue time is in the future according to the node's clock.",
    remedy: "Synchronize the clocks of the controller and the node.",
  },
  MILLPOND_E_TICKET_WRONG_NODE: {
    connect: Code.PermissionDenied,
    meaning: "The ticket is for another node.",
    remedy: "Present it to the agent URL that came with it.",
  },
  MILLPOND_E_TICKET_STALE: {
    connect: Code.PermissionDenied,
    meaning: "The ticket belongs to an allocation that has been replaced or taken away.",
    remedy: "Get a new ticket.",
  },
  MILLPOND_E_TICKET_USED: {
    connect: Code.PermissionDenied,
    meaning: "The ticket has already opened a session; each ticket opens one.",
    remedy: "Get a new ticket.",
  },
  MILLPOND_E_NO_WORKER: {
    connect: Code.Unavailable,
    meaning: "The agent could not start a worker for the session.",
    remedy: "Check the agent's log and worker.log in its run directory.",
  },
  MILLPOND_E_TRANSPORT_UNAVAILABLE: {
    connect: Code.FailedPrecondition,
    meaning: "The requested transport cannot be used between this client and this node.",
    remedy: "Set MILLPOND_TRANSPORT=auto.",
  },
  MILLPOND_E_DRIVER: {
    connect: Code.Unavailable,
    meaning: "The driver library could not be loaded or finds no device.",
    remedy: "Check the path of the driver library and that the driver works, for example with `nvidia-smi`.",
  },
  MILLPOND_E_VERSION: {
    connect: Code.FailedPrecondition,
    meaning: "Two components have versions of Millpond that do not work together.",
    remedy: "Install the same version of Millpond on both sides.",
  },
  MILLPOND_E_UNREACHABLE: {
    connect: Code.Unavailable,
    meaning: "The controller or an agent does not answer at its address.",
    remedy: "Check the address (MILLPOND_CONTROLLER) and that it is running.",
  },
  MILLPOND_E_SHUTTING_DOWN: {
    connect: Code.Unavailable,
    meaning: "The component is shutting down.",
    remedy: "Try again after it has restarted.",
  },
  MILLPOND_E_NOT_LEADER: {
    connect: Code.Unavailable,
    meaning: "This controller is a follower; only the leader can serve this request.",
    remedy: "Ask the controller that the message names, or name all of them: MILLPOND_CONTROLLER=url,url,….",
  },
  MILLPOND_E_STORE_UNREACHABLE: {
    connect: Code.Unavailable,
    meaning: "The database that holds the state does not answer, or is read-only.",
    remedy: "Check that it runs and that the controllers reach it; they recover by themselves.",
  },
  MILLPOND_E_TLS: {
    connect: Code.FailedPrecondition,
    meaning:
      "A certificate is unusable, or the caller does not trust it; or without TLS, another user of the machine serves the port.",
    remedy:
      "Set MILLPOND_CA to the file of the authority's certificate: tls/ca.crt in the controller's state directory.",
  },
  MILLPOND_E_ADDRESS_IN_USE: {
    connect: Code.FailedPrecondition,
    meaning: "Another process listens on the address.",
    remedy: "Stop it, or choose another port; port 0 takes a free one.",
  },
  MILLPOND_E_STATE_LOCKED: {
    connect: Code.FailedPrecondition,
    meaning: "Another controller uses the state directory.",
    remedy: "Stop it, or give this one another --state directory.",
  },
  MILLPOND_E_STATE_NEWER: {
    connect: Code.FailedPrecondition,
    meaning: "The state directory was written by a newer version of Millpond.",
    remedy: "Start a version that is at least as new, or give this one another --state directory.",
  },
  MILLPOND_E_STATE_BROKEN: {
    connect: Code.DataLoss,
    meaning: "The state directory cannot be read or written, or its content is damaged.",
    remedy: "Check the disk and the directory's owner and mode; restore it from a copy if it is damaged.",
  },
  MILLPOND_E_POOL_KEY: {
    connect: Code.FailedPrecondition,
    meaning: "The secrets of a state or a backup are sealed with another pool key.",
    remedy: "Copy `pool.key` from the state directory of a controller of that pool, with mode 0600.",
  },
  MILLPOND_E_STATE_FULL: {
    connect: Code.ResourceExhausted,
    meaning: "The disk that holds the state is full. Bound claims and their programs continue.",
    remedy:
      "Free space on the disk of the controller's state directory or database, or of the agent's run directory; the service recovers by itself.",
  },
  MILLPOND_E_NOT_INSTALLED: {
    connect: Code.FailedPrecondition,
    meaning: "A native component is missing from this installation.",
    remedy: "Build it with `npm run build`, or set MILLPOND_NATIVE_DIR to the directory that holds it.",
  },
  MILLPOND_E_PROGRAM: {
    connect: Code.InvalidArgument,
    meaning: "The program to run was not found, or is not executable.",
    remedy: "Check its path, its mode and PATH.",
  },
  MILLPOND_E_INTERNAL: {
    connect: Code.Internal,
    meaning: "Internal error: this is a bug in Millpond.",
    remedy: "Report it with the log of the component that returned it.",
  },
} as const satisfies Record<string, ErrorDefinition>;

/**
 * Exit statuses of `millpond` by error; any other error has the status 125. Programs that run under it seldom use these
 * statuses; 124 is that of timeout(1), 126 and 127 are those of shells.
 */
export const exitStatuses: Readonly<Record<number, readonly ErrorCode[]>> = {
  118: ["MILLPOND_E_INVALID"],
  119: [
    "MILLPOND_E_UNREACHABLE",
    "MILLPOND_E_STORE_UNREACHABLE",
    "MILLPOND_E_NOT_LEADER",
    "MILLPOND_E_SHUTTING_DOWN",
    "MILLPOND_E_NOT_CONFIGURED",
  ],
  120: ["MILLPOND_E_UNAUTHENTICATED", "MILLPOND_E_FORBIDDEN"],
  121: ["MILLPOND_E_NOT_FOUND", "MILLPOND_E_CLAIM_ENDED"],
  122: ["MILLPOND_E_IMPOSSIBLE"],
  123: [
    "MILLPOND_E_NO_CAPACITY",
    "MILLPOND_E_TOO_MANY_CLAIMS",
    "MILLPOND_E_TOO_MANY_CALLS",
    "MILLPOND_E_TOO_MANY_SESSIONS",
    "MILLPOND_E_TOO_MANY_TOKENS",
  ],
  124: ["MILLPOND_E_WAIT_TIMEOUT"],
};

/** The exit status of an error without one of its own. */
export const otherExitStatus = 125;

export function exitStatusOf(code: ErrorCode): number {
  const found = Object.entries(exitStatuses).find(([, codes]) => codes.includes(code));
  return found === undefined ? otherExitStatus : Number(found[0]);
}

/** A stable name of an error, in its detail `ErrorInfo`; its message also ends with it, in brackets. */
export type ErrorCode = keyof typeof errorTable;

/** Header of a MILLPOND_E_NOT_LEADER: the URL of the leader. */
export const leaderHeader = "millpond-leader";

export interface ErrorDetail {
  /** The remedy, a sentence, where it is more specific than that of the table. */
  readonly remedy?: string;
  /** The cause in structured form, redacted for its reader. */
  readonly reason?: MessageInitShape<typeof ReasonSchema>;
  /** Not sent to the caller. */
  readonly cause?: unknown;
}

/**
 * Creates the error to throw: `<what>. <remedy> [<code>]`, always one line.
 *
 * @param what the event and its cause, with current numbers, without a full stop at the end
 */
export function millpondError(code: ErrorCode, what: string, detail: ErrorDetail = {}): ConnectError {
  const { connect, remedy: usual } = errorTable[code];
  const { remedy = usual, reason, cause } = detail;
  const message = `${oneLine(what)}. ${remedy} [${code}]`;
  const info = { code, remedy, ...(reason === undefined ? {} : { reason }) };
  return new ConnectError(message, connect, undefined, [{ desc: ErrorInfoSchema, value: info }], cause);
}

const codePattern = /\[(MILLPOND_E_[A-Z_]+)\]$/;

/**
 * The code of an error: from its detail or, for an error of an earlier release, from the end of its message; undefined for
 * an error without a code, or with an unknown one.
 */
export function errorCodeOf(error: unknown): ErrorCode | undefined {
  const [info] = error instanceof ConnectError ? error.findDetails(ErrorInfoSchema) : [];
  if (info !== undefined) {
    return isErrorCode(info.code) ? info.code : undefined;
  }
  const message =
    error instanceof ConnectError ? error.rawMessage : error instanceof Error ? error.message : "";
  const code = codePattern.exec(message)?.[1];
  return code !== undefined && isErrorCode(code) ? code : undefined;
}

/** The remedy of an error, from its detail; undefined for an error of an earlier release, or without a code. */
export function remedyOf(error: unknown): string | undefined {
  return error instanceof ConnectError ? error.findDetails(ErrorInfoSchema)[0]?.remedy : undefined;
}

function isErrorCode(text: string): text is ErrorCode {
  return Object.hasOwn(errorTable, text);
}

/** Quotes text from outside: without control characters, and shortened. */
export function quote(text: string): string {
  const shown = oneLine(text);
  return shown.length > 80 ? `"${shown.slice(0, 77)}…"` : `"${shown}"`;
}

function oneLine(text: string): string {
  // Newlines would break the one-line form, other control characters could rewrite a terminal.
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ");
}
