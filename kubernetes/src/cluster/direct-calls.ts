// SPDX-License-Identifier: Apache-2.0

// Sends the calls of the client library over connections of our own, bypassing `fetch`, whose streams, headers and
// decompression took a quarter of the operator's time.

import {
  type HttpLibrary,
  IsomorphicFetchHttpLibrary,
  type RequestContext,
  ResponseContext,
  SelfDecodingBody,
  wrapHttpLibrary,
} from "@kubernetes/client-node";

/** Header `Accept` of calls whose answer is not read. */
export const metadataAlone = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/** API servers themselves end calls after a minute. */
const answerMs = 70_000;

const byFetch = new IsomorphicFetchHttpLibrary();
const direct = wrapHttpLibrary({ send: call });

export const directCalls: HttpLibrary = {
  // For a server without TLS the configuration has no agent.
  send: (request) => (request.getDispatcher() === undefined ? byFetch : direct).send(request),
};

async function call(request: RequestContext): Promise<ResponseContext> {
  const { origin, pathname, search } = new URL(request.getUrl());
  const headers = request.getHeaders();
  const body = request.getBody();
  if (body !== undefined && typeof body !== "string") throw new Error("a call has a body that is not text");
  const answer = await request.getDispatcher()?.request({
    origin,
    path: `${pathname}${search}`,
    method: request.getHttpMethod(),
    headers: { ...headers, "user-agent": "millpond" },
    body: body ?? null,
    signal: request.getSignal() ?? null,
    headersTimeout: answerMs,
    bodyTimeout: answerMs,
  });
  if (answer === undefined) throw new Error("a call has no connection");
  const isUnread = headers["Accept"] === metadataAlone && answer.statusCode < 300;
  if (isUnread) await answer.body.dump();
  // The body is read completely: a caller that only looks at the status would leave it unread, and the connection
  // unusable.
  const content = isUnread ? Buffer.from("{}") : Buffer.from(await answer.body.arrayBuffer());
  const fields = Object.entries(answer.headers).map(([name, value]) => [name, String(value)] as const);
  const text = new SelfDecodingBody(Promise.resolve(content));
  return new ResponseContext(answer.statusCode, Object.fromEntries(fields), text);
}
