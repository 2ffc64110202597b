// SPDX-License-Identifier: Apache-2.0

import type { DescMethodUnary, DescService, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";

/** The context of a call besides its message. */
export type CallContext = Pick<HandlerContext, "values" | "signal">;

/** Implements a service; all methods of our services are unary. */
export type ServiceMethods<S extends DescService> = {
  readonly [M in keyof S["method"]]: S["method"][M] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, context: CallContext) => Promise<MessageInitShape<O>> | MessageInitShape<O>
    : never;
};

/** The router on which services are registered. */
export interface ServiceRegistry {
  service<S extends DescService>(service: S, methods: ServiceMethods<S>): void;
}
