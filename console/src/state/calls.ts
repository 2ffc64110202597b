// SPDX-License-Identifier: Apache-2.0

// Calls to the controller from which the page was loaded, authenticated by the login in its cookie.

import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AccessService, ClaimService, errorCodeOf, PoolService, QueueService } from "@millpond/api/browser";
import { compareClocks } from "./clock.ts";

/** A page of another origin cannot send this header. */
export const pageHeader = "millpond-console";

const asPage: Interceptor = (next) => async (request) => {
  request.header.set(pageHeader, "1");
  const response = await next(request);
  compareClocks(response.header.get("date"));
  return response;
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

/** Whether a working controller sent it: a refusal is also an answer. */
export function isAnswer(error: unknown): boolean {
  return error instanceof ConnectError && errorCodeOf(error) !== undefined && error.code !== Code.Unavailable;
}

/** The controller's answer, or its absence. */
export function textOf(error: unknown): string {
  return error instanceof ConnectError ? error.rawMessage : String(error);
}
