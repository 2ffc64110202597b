// SPDX-License-Identifier: Apache-2.0

import { Code, ConnectError } from "@connectrpc/connect";

interface ErrorDefinition {
  /** The Connect and gRPC code that carries it. */
  readonly connect: Code;
  /** What it means, one sentence. */
  readonly meaning: string;
  /** What to do, one sentence in the imperative. Used wherever the one who raises it knows nothing better. */
  readonly remedy: string;
}

/**
 * Every error that a part of Millpond shows to people. `docs/reference/errors.md` is generated from this table
 * (`npm run generate -w api`). A code never changes its meaning and is never used again after it has gone.
 */
export const errorTable = {
  MILLPOND_E_INVALID: {
    connect: Code.InvalidArgument,
    meaning: "An argument, an option or a field of a request is malformed or out of range.",
    remedy: "Correct the value that the message names and try again.",
  },
  MILLPOND_E_NOT_CONFIGURED: {
    connect: Code.FailedPrecondition,
    meaning: "The program was not told where to get a GPU from.",
    remedy: "Start it with `millpond run -- ...`, or set MILLPOND_CONTROLLER.",
  },
  MILLPOND_E_UNAUTHENTICATED: {
    connect: Code.Unauthenticated,
    meaning: "The request carries no token, or one that the controller does not know.",
    remedy:
      "Set MILLPOND_TOKEN to a token that an administrator made, or to the one in the controller's state directory.",
  },
  MILLPOND_E_FORBIDDEN: {
    connect: Code.PermissionDenied,
    meaning: "The token is good, but not for this method.",
    remedy: "Use the token of the role that the message names.",
  },
  MILLPOND_E_NOT_FOUND: {
    connect: Code.NotFound,
    meaning: "There is no object of that name.",
    remedy: "List what exists with `millpond get claims` or `millpond get nodes`.",
  },
  MILLPOND_E_ALREADY_EXISTS: {
    connect: Code.AlreadyExists,
    meaning: "The name is in use, or belonged to a claim that ended a short while ago.",
    remedy: "Choose another name, or leave it out to get one.",
  },
  MILLPOND_E_IN_USE: {
    connect: Code.FailedPrecondition,
    meaning: "The object has claims or parts that need it.",
    remedy: "Release or move what the message names first.",
  },
  MILLPOND_E_IMPOSSIBLE: {
    connect: Code.FailedPrecondition,
    meaning: "No node of the pool could hold the claim, even if it were empty.",
    remedy: "Ask for fewer vGPUs, for less of each, or without the constraint that the message names.",
  },
  MILLPOND_E_NO_CAPACITY: {
    connect: Code.ResourceExhausted,
    meaning: "The pool has no room for the claim now, and the caller did not want to wait.",
    remedy: "Ask for less, or wait for room.",
  },
  MILLPOND_E_TOO_MANY_CLAIMS: {
    connect: Code.ResourceExhausted,
    meaning: "As many claims are waiting as the controller keeps.",
    remedy: "Release claims that are no longer wanted, or try again later.",
  },
  MILLPOND_E_WAIT_TIMEOUT: {
    connect: Code.DeadlineExceeded,
    meaning: "The pool had no room for the claim within the time that the caller was willing to wait.",
    remedy: "Wait longer, or ask for less.",
  },
  MILLPOND_E_CLAIM_NOT_BOUND: {
    connect: Code.FailedPrecondition,
    meaning: "The claim still waits for room, or is dormant, so it has nothing to attach to.",
    remedy: "Wait until the claim is bound; WaitClaim with `wake` wakes a dormant one.",
  },
  MILLPOND_E_CLAIM_ENDED: {
    connect: Code.FailedPrecondition,
    meaning: "The claim has ended: it was released, or nobody renewed its lease.",
    remedy: "Create a new claim.",
  },
  MILLPOND_E_NODE_NOT_READY: {
    connect: Code.Unavailable,
    meaning: "The controller has lost contact with the agent of the node that holds the allocation.",
    remedy: "Check the agent on that node with `millpond doctor`, and try again.",
  },
  MILLPOND_E_DEVICE_UNHEALTHY: {
    connect: Code.Unavailable,
    meaning: "A device of the allocation is ill or gone.",
    remedy: "Release the claim and create a new one.",
  },
  MILLPOND_E_NODE_NAME_TAKEN: {
    connect: Code.AlreadyExists,
    meaning: "Another agent that is in contact uses this node name.",
    remedy: "Stop that agent, or give this one another --name.",
  },
  MILLPOND_E_NODE_REMOVED: {
    connect: Code.PermissionDenied,
    meaning: "The node was removed from the pool, and the agent's token was made before that.",
    remedy:
      "Stop this agent. To join again, start it with a new token: `millpond token create NAME --role agent`.",
  },
  MILLPOND_E_TICKET_INVALID: {
    connect: Code.Unauthenticated,
    meaning: "The ticket is malformed, or was not signed by this pool's controller.",
    remedy: "Get a new ticket from the controller that the agent belongs to.",
  },
  MILLPOND_E_TICKET_EXPIRED: {
    connect: Code.Unauthenticated,
    meaning: "The ticket's time is over.",
    remedy:
      "Get a new ticket; if this repeats, compare the clocks of the controller's and the node's machines.",
  },
  MILLPOND_E_TICKET_NOT_YET_VALID: {
    connect: Code.Unauthenticated,
    meaning: "The ticket was issued in what is the future on the node's machine.",
    remedy: "Set the clocks of the controller's and the node's machines.",
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
    meaning: "The ticket has opened a session already; each opens one.",
    remedy: "Get a new ticket.",
  },
  MILLPOND_E_NO_WORKER: {
    connect: Code.Unavailable,
    meaning: "The agent could not start a worker for the session.",
    remedy: "Look into the agent's log and into worker.log in its run directory.",
  },
  MILLPOND_E_TRANSPORT_UNAVAILABLE: {
    connect: Code.FailedPrecondition,
    meaning: "The transport that was asked for cannot be used between this client and this node.",
    remedy: "Set MILLPOND_TRANSPORT=auto.",
  },
  MILLPOND_E_DRIVER: {
    connect: Code.Unavailable,
    meaning: "The driver library could not be loaded or finds no device.",
    remedy: "Check the path of the driver library and that the driver works, for example with `nvidia-smi`.",
  },
  MILLPOND_E_VERSION: {
    connect: Code.FailedPrecondition,
    meaning: "Two parts of Millpond come from versions that do not work together.",
    remedy: "Install the same version of Millpond on both sides.",
  },
  MILLPOND_E_UNREACHABLE: {
    connect: Code.Unavailable,
    meaning: "The controller or an agent does not answer at its address.",
    remedy: "Check the address (MILLPOND_CONTROLLER) and that it is running.",
  },
  MILLPOND_E_SHUTTING_DOWN: {
    connect: Code.Unavailable,
    meaning: "The part that was called is being stopped.",
    remedy: "Try again when it has started again.",
  },
  MILLPOND_E_NOT_LEADER: {
    connect: Code.Unavailable,
    meaning: "Of several controllers one leads, and only that one can do what was asked; this is another.",
    remedy: "Ask the controller that the message names, or name all of them: MILLPOND_CONTROLLER=url,url,….",
  },
  MILLPOND_E_STORE_UNREACHABLE: {
    connect: Code.Unavailable,
    meaning: "The database that holds the state does not answer, or takes no changes now.",
    remedy: "Check that it runs and that the controllers reach it; they go on by themselves when it is back.",
  },
  MILLPOND_E_TLS: {
    connect: Code.FailedPrecondition,
    meaning: "A certificate cannot be used, or the one who calls does not trust it.",
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
    meaning: "The state directory cannot be read or written as it should be.",
    remedy: "Check the disk and the directory's owner and mode; restore it from a copy if it is damaged.",
  },
  MILLPOND_E_STATE_FULL: {
    connect: Code.ResourceExhausted,
    meaning: "The disk that holds the state has no room for a change. What was granted before goes on.",
    remedy:
      "Make room on the disk of the controller's state directory or of its database, or of the agent's run directory; nothing else need be done.",
  },
  MILLPOND_E_NOT_INSTALLED: {
    connect: Code.FailedPrecondition,
    meaning: "A native part of Millpond is not where this installation should have it.",
    remedy: "Build it with `npm run build`, or set MILLPOND_NATIVE_DIR to the directory that holds it.",
  },
  MILLPOND_E_PROGRAM: {
    connect: Code.InvalidArgument,
    meaning: "The program that was to be run is not found or cannot be run.",
    remedy: "Check its path, its mode and PATH.",
  },
  MILLPOND_E_INTERNAL: {
    connect: Code.Internal,
    meaning: "Something that should not happen happened.",
    remedy: "Report it together with the log of the part that said so.",
  },
} as const satisfies Record<string, ErrorDefinition>;

/** A stable name of an error: the part in brackets at the end of a message. */
export type ErrorCode = keyof typeof errorTable;

/** Header of a MILLPOND_E_NOT_LEADER: the URL of the controller that leads. */
export const leaderHeader = "millpond-leader";

export interface ErrorDetail {
  /** What to do, a sentence, where more is known than the table says. */
  readonly remedy?: string;
  /** Stays on this side of the wire. */
  readonly cause?: unknown;
}

/**
 * Makes the error that is thrown: `<what>. <remedy> [<code>]`, always one line.
 *
 * @param what What happened and why, with the live numbers, without a full stop at the end.
 */
export function millpondError(code: ErrorCode, what: string, detail: ErrorDetail = {}): ConnectError {
  const { connect, remedy } = errorTable[code];
  const message = `${oneLine(what)}. ${detail.remedy ?? remedy} [${code}]`;
  return new ConnectError(message, connect, undefined, undefined, detail.cause);
}

const codePattern = /\[(MILLPOND_E_[A-Z_]+)\]$/;

/** The code at the end of an error's message; undefined where it has none, or one that this version does not know. */
export function errorCodeOf(error: unknown): ErrorCode | undefined {
  const message =
    error instanceof ConnectError ? error.rawMessage : error instanceof Error ? error.message : "";
  const code = codePattern.exec(message)?.[1];
  return code !== undefined && isErrorCode(code) ? code : undefined;
}

function isErrorCode(text: string): text is ErrorCode {
  return Object.hasOwn(errorTable, text);
}

/** Shows text that came from outside: quoted, without control characters, shortened. */
export function quote(text: string): string {
  const shown = oneLine(text);
  return shown.length > 80 ? `"${shown.slice(0, 77)}…"` : `"${shown}"`;
}

function oneLine(text: string): string {
  // Newlines would break the one-line form, other control characters could rewrite a terminal.
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ");
}
