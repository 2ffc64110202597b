// SPDX-License-Identifier: Apache-2.0

// Calls of the controller that the page came from, by the login in its cookie.

import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AccessService, ClaimService, errorCodeOf, PoolService, QueueService } from "@millpond/api/browser";

/** A page of another origin cannot send it. */
export const pageHeader = "millpond-console";

const asPage: Interceptor = (next) => (request) => {
  request.header.set(pageHeader, "1");
  return next(request);
};

const transport = createConnectTransport({
  baseUrl: location.origin,
  useBinaryFormat: true,
  interceptors: [asPage],
});

export const access = createClient(AccessService, transport);
export const claims = createClient(ClaimService, transport);
export const pool = createClient(PoolService, transport);
export const queues = createClient(QueueService, transport);

export function isLoggedOut(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.Unauthenticated;
}

/** Whether a controller that does its work said it: a refusal is not a silence. */
export function isAnswer(error: unknown): boolean {
  return error instanceof ConnectError && errorCodeOf(error) !== undefined && error.code !== Code.Unavailable;
}

/** The controller's answer, or its absence. */
export function textOf(error: unknown): string {
  return error instanceof ConnectError ? error.rawMessage : String(error);
}
