// SPDX-License-Identifier: Apache-2.0

import { pageHeader } from "./calls.ts";
import { compareClocks } from "./clock.ts";
import { Store } from "./store.ts";

const path = "/console/session";

/** The user whose rights the page has. */
export interface Me {
  readonly name: string;
  readonly role: string;
  /** Empty: all tenants. */
  readonly tenant: string;
}

/** `unknown`: not requested yet; `none`: no user is logged in. */
export const login = new Store<Me | "unknown" | "none">("unknown");

/** Name of the OpenID provider through which users may log in; empty: there is none. */
export const provider = new Store<string>("");

/** Why the last login ended or failed, for the login page; empty: it did not. */
export const loginTrouble = new Store<string>("");

interface Refusal {
  readonly message?: string;
  readonly provider?: string;
  /** Why a login through the provider failed. */
  readonly trouble?: string;
}

async function send(method: string, body?: unknown): Promise<Me> {
  const response = await fetch(path, {
    method,
    headers: { [pageHeader]: "1", "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  compareClocks(response.headers.get("date"));
  if (response.status === 204) {
    return { name: "", role: "", tenant: "" };
  }
  const answer = (await response.json()) as Me & Refusal;
  provider.set(answer.provider ?? provider.get());
  if (answer.trouble !== undefined) {
    loginTrouble.set(answer.trouble);
  }
  if (!response.ok) {
    throw new Error(answer.message ?? String(response.status));
  }
  return answer;
}

/** Determines whether there is a login. */
export async function resume(): Promise<void> {
  login.set(await send("GET").catch(() => "none" as const));
}

/** @throws an error with the controller's message */
export async function logIn(by: { readonly token: string } | { readonly code: string }): Promise<void> {
  login.set(await send("POST", by));
  loginTrouble.set("");
}

/** This browser is logged out in any case; the login page reports that copies of the cookie remain valid, and why. */
export async function logOut(): Promise<void> {
  try {
    await send("DELETE");
  } catch (error) {
    loginTrouble.set(error instanceof Error ? error.message : String(error));
  }
  login.set("none");
}

/** Handles an answer saying that the login is no longer valid. */
export function loseLogin(why: string): void {
  if (login.get() !== "none") {
    loginTrouble.set(why);
    login.set("none");
  }
}

/** Whether a role includes another one. */
export function mayAs(me: Me, role: "tenant-admin" | "admin"): boolean {
  return me.role === "admin" || me.role === role;
}
