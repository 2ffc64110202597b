// SPDX-License-Identifier: Apache-2.0

import type { Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";

/** JSON over HTTP/1.1, with a token where one is given. */
export function makeTransport(url: string, token?: string): Transport {
  return createConnectTransport({
    baseUrl: url,
    httpVersion: "1.1",
    useBinaryFormat: false,
    interceptors: [
      (next) => async (request) => {
        if (token !== undefined) {
          request.header.set("Authorization", `Bearer ${token}`);
        }
        return await next(request);
      },
    ],
  });
}
