// SPDX-License-Identifier: Apache-2.0

// Logins of browsers, as users and administrators list and end them.

import { expect, test } from "vitest";
import { loginSeconds } from "../auth/active-logins.ts";
import { as, refusal, startTenants } from "../testing/tenants.ts";
import type { TestPool } from "../testing/test-pool.ts";

const page = { "content-type": "application/json", "millpond-console": "1", "sec-fetch-site": "same-origin" };

/** A browser with its cookie. */
class Browser {
  readonly #url: string;
  readonly #cookie: string;

  private constructor(url: string, cookie: string) {
    this.#url = url;
    this.#cookie = cookie;
  }

  static async logIn({ controller: { url } }: TestPool, token: string): Promise<Browser> {
    const body = JSON.stringify({ token });
    const response = await fetch(`${url}/console/session`, { method: "POST", headers: page, body });
    expect(response.status).toBe(200);
    return new Browser(url, (response.headers.get("set-cookie") ?? "").split(";")[0] ?? "");
  }

  async isLoggedIn(): Promise<boolean> {
    const headers = { ...page, cookie: this.#cookie };
    return (await fetch(`${this.#url}/console/session`, { headers })).status === 200;
  }

  async logOut(): Promise<number> {
    const headers = { ...page, cookie: this.#cookie };
    return (await fetch(`${this.#url}/console/session`, { method: "DELETE", headers })).status;
  }
}

async function startUsers() {
  const tenants = await startTenants();
  const { admin, pool } = tenants;
  const tokenOf = async (name: string, tenant: string) =>
    (await admin.access.createToken({ name, role: "user", tenant })).secret;
  const [amy, abe, bea] = [
    await tokenOf("amy", "team-a"),
    await tokenOf("abe", "team-a"),
    await tokenOf("bea", "team-b"),
  ];
  return { ...tenants, amy, abe, bea, asAmy: as(pool, amy) };
}

test("a user lists and ends own logins, an administrator those of the tenant, and one of the pool all", async () => {
  const { pool, admin, chief, amy, abe, bea, asAmy } = await startUsers();
  const [amys, abes, beas] = [
    await Browser.logIn(pool, amy),
    await Browser.logIn(pool, abe),
    await Browser.logIn(pool, bea),
  ];
  const listed = async (clients: typeof admin) =>
    (await clients.access.listLogins({})).logins.map(({ who, tenant, kind }) => `${who} ${tenant} ${kind}`);
  expect(await listed(asAmy)).toEqual(["amy team-a console"]);
  expect((await listed(chief)).toSorted()).toEqual(["abe team-a console", "amy team-a console"]);
  expect(await listed(admin)).toHaveLength(3);
  const idOf = async (name: string) =>
    (await admin.access.listLogins({})).logins.find(({ who }) => who === name)?.id ?? "";
  const [ofAbe, ofBea, ofAmy] = [await idOf("abe"), await idOf("bea"), await idOf("amy")];
  const foreign = await refusal(asAmy.access.revokeLogin({ id: ofAbe }));
  const none = await refusal(asAmy.access.revokeLogin({ id: "0".repeat(16) }));
  expect(foreign.message.replace(ofAbe, "0".repeat(16))).toBe(none.message);
  expect((await refusal(chief.access.revokeLogin({ id: ofBea }))).code).toBe("MILLPOND_E_NOT_FOUND");
  expect((await refusal(admin.access.revokeLogin({}))).code).toBe("MILLPOND_E_INVALID");
  await chief.access.revokeLogin({ id: ofAbe });
  await admin.access.revokeLogin({ id: ofBea });
  await asAmy.access.revokeLogin({ id: ofAmy });
  expect([await amys.isLoggedIn(), await abes.isLoggedIn(), await beas.isLoggedIn()]).toEqual([
    false,
    false,
    false,
  ]);
  // The tokens are still valid.
  expect((await asAmy.access.getCaller({})).name).toBe("amy");
  expect(await listed(admin)).toEqual([]);
  const audited = (await admin.access.listAudit({})).records.map(
    ({ who, what, subject, result }) => `${who} ${what} ${subject} ${result}`,
  );
  expect(audited).toContain(`amy AccessService/CreateLogin login/${ofAmy} ok`);
  expect(audited).toContain(`chief AccessService/RevokeLogin login/${ofAbe} ok`);
  expect(audited).toContain(`amy AccessService/RevokeLogin login/${ofAbe} MILLPOND_E_NOT_FOUND`);
});

test("a login is listed until its end, and an ended one is ended for copies of its cookie", async () => {
  const { pool, admin, amy } = await startUsers();
  const first = await Browser.logIn(pool, amy);
  const second = await Browser.logIn(pool, amy);
  expect(await second.logOut()).toBe(204);
  expect([await first.isLoggedIn(), await second.isLoggedIn()]).toEqual([true, false]);
  expect(await second.logOut()).toBe(204);
  // Whether or not its record is still kept.
  await pool.passTime(400);
  const third = await Browser.logIn(pool, amy);
  expect([await first.isLoggedIn(), await second.isLoggedIn(), await third.isLoggedIn()]).toEqual([
    true,
    false,
    true,
  ]);
  const [oldest] = (await admin.access.listLogins({})).logins;
  expect(Number(oldest?.expiresAt) - Number(oldest?.createdAt)).toBe(loginSeconds);
  await admin.access.revokeLogin({ id: oldest?.id ?? "" });
  expect([await first.isLoggedIn(), await third.isLoggedIn()]).toEqual([false, true]);
  pool.clock.advance(loginSeconds * 1000);
  expect((await admin.access.listLogins({})).logins).toEqual([]);
  expect(await third.isLoggedIn()).toBe(false);
});

test("the oldest login of a user ends for the thirty-third, and all of a token end with it", async () => {
  const { pool, admin, amy, abe } = await startUsers();
  const other = await Browser.logIn(pool, abe);
  const browsers: Browser[] = [];
  for (let count = 0; count < 33; count++) {
    browsers.push(await Browser.logIn(pool, amy));
    pool.clock.advance(1000);
  }
  const [first, second] = browsers;
  expect([await first?.isLoggedIn(), await second?.isLoggedIn(), await other.isLoggedIn()]).toEqual([
    false,
    true,
    true,
  ]);
  expect((await admin.access.listLogins({})).logins).toHaveLength(33);
  await admin.access.revokeToken({ name: "amy" });
  expect((await admin.access.listLogins({})).logins.map(({ who }) => who)).toEqual(["abe"]);
});
