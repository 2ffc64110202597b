// SPDX-License-Identifier: Apache-2.0

import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ClaimSchema,
  ClaimState,
  CreateClaimRequestSchema,
  CreateClaimResponseSchema,
  ReleaseClaimRequestSchema,
} from "@millpond/api";
import { HttpConnection } from "./http-connection.ts";

const createPath = "/millpond.v1.ClaimService/CreateClaim";
const releasePath = "/millpond.v1.ClaimService/ReleaseClaim";

/** A client that creates and releases claims, one call at a time. */
export class Claimant {
  readonly #connection: HttpConnection;

  private constructor(connection: HttpConnection) {
    this.#connection = connection;
  }

  static async open(url: string, token: string): Promise<Claimant> {
    return new Claimant(await HttpConnection.open(url, token));
  }

  /** @throws Error unless the claim is bound immediately */
  async create(claim: MessageInitShape<typeof ClaimSchema>): Promise<void> {
    const made = await this.#make(claim, { noWait: true });
    if (made?.state !== ClaimState.BOUND)
      throw new Error(`the claim ${claim.name} is not bound: ${made?.reason}`);
  }

  /** @throws Error unless the claim must wait */
  async enqueue(claim: MessageInitShape<typeof ClaimSchema>): Promise<void> {
    const made = await this.#make(claim, { noWait: false });
    if (made?.state !== ClaimState.PENDING) throw new Error(`the claim ${claim.name} does not wait`);
  }

  async #make(claim: MessageInitShape<typeof ClaimSchema>, { noWait }: { readonly noWait: boolean }) {
    const request = create(CreateClaimRequestSchema, { claim, noWait });
    const answer = await this.#connection.call(createPath, toBinary(CreateClaimRequestSchema, request));
    return fromBinary(CreateClaimResponseSchema, answer).claim;
  }

  async release(name: string): Promise<void> {
    const request = create(ReleaseClaimRequestSchema, { name });
    await this.#connection.call(releasePath, toBinary(ReleaseClaimRequestSchema, request));
  }

  close(): void {
    this.#connection.close();
  }
}
