// SPDX-License-Identifier: Apache-2.0
// The web console in Chromium.
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { fakeDevice } from "@millpond/controller/testing/fake-agent";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { consoleDirectory } from "../../scripts/lib/build/console-build.ts";
import { ConsolePool, launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";
import { startPool } from "./small-pool.ts";

const GiB = 1n << 30n;

/** A page from another origin. */
async function serve(html: string): Promise<{ readonly url: string } & AsyncDisposable> {
  const server = createServer((_request, response) => {
    response.writeHead(200, { "content-type": "text/html" }).end(html);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

describe.skipIf(missingBrowser !== "")(`the console${missingBrowser}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser.close();
  });

  it("a login by link, once, leads to the views, which show the pool's numbers; none has a finding of axe", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    const { code } = await pool.clients().access.createLoginCode({});
    await watched.visit(`login#${code}`);
    await page.getByRole("heading", { name: "Pool" }).waitFor();
    expect(page.url()).toBe(`${pool.url}/console/`);
    await expect
      .poll(() => page.locator(".card").allInnerTexts())
      .toEqual([
        expect.stringMatching(/^Compute\s+1\.0 of 4 GPU granted/),
        expect.stringMatching(/^Memory\s+4 GiB of 24 GiB granted/),
        expect.stringMatching(/^Nodes\s+2 of 2 ready/),
        expect.stringMatching(/^Claims\s+1 bound/),
        expect.stringMatching(/^Waiting claims\s+1 · oldest \d+s/),
        expect.stringMatching(/^Version\s+0\.1\.0 · this controller is the leader/),
      ]);
    expect(await page.locator(".attention").innerText()).toMatch(/unhealthy\s+node-b\/1\s+Xid 79/);
    await watched.expectAccessible();

    const { queues } = pool.clients();
    await queues.putTenant({ tenant: { name: "team-a", limit: { gpuMilli: 1500n } } });
    const expectations: readonly [string, RegExp, RegExp][] = [
      ["Nodes", /node-a.*ready.*2.*1\.0/s, /millpond get nodes/],
      ["GPUs", /node-b\/1.*unhealthy/s, /millpond top devices/],
      ["Claims", /big.*waiting.*whole device/s, /millpond get claims/],
      ["Sessions", /python \(77\).*train.*connected.*node-a\/0,1/s, /millpond get sessions/],
      ["Queues", /default.*1 GPU/s, /millpond get queues/],
      ["Tenants", /default.*1 GPU.*team-a.*1\.5 GPU/s, /millpond get tenants/],
      ["Usage", /default.*default.*2/s, /millpond usage/],
      ["Audit", /PutTenant.*tenant\/team-a.*ok/s, /millpond get audit/],
      ["Tokens", /There is nothing here/, /millpond token list/],
      ["Events", /ClaimBound.*claim\/train/s, /millpond get events/],
    ];
    for (const [view, shown, command] of expectations) {
      await page.getByRole("navigation").getByRole("link", { name: view, exact: true }).click();
      await expect.poll(() => page.locator("#content").innerText(), { message: view }).toMatch(shown);
      expect(await page.locator(".view-head > .command code").innerText()).toMatch(command);
      await watched.expectAccessible();
    }
    await watched.visit("claims/big");
    await expect
      .poll(() => page.locator(".why").innerText())
      .toMatch(/waiting.+Position\s+1 of 1 in the queue default/s);
    await watched.expectAccessible();
    await watched.visit("nodes/node-b");
    await expect.poll(() => page.locator("#content").innerText()).toMatch(/node-b\/1[^]*unhealthy/);
    await watched.expectAccessible();

    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByLabel("Token").waitFor();
    await watched.expectAccessible();
    await watched.visit(`login#${code}`);
    await page.getByRole("alert").filter({ hasText: "has been used" }).waitFor();
    watched.expectNoFaults();
  });

  it("a login that ends leads to the login page, and from there back to where one was", async () => {
    await using pool = await startPool();
    const { access } = pool.clients();
    const make = async (name: string) => (await access.createToken({ name, role: "admin" })).secret;
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("claims?q=big");
    await watched.logIn("no-such-token-0000000");
    await page.getByRole("alert").filter({ hasText: "does not know" }).waitFor();
    await watched.logIn(await make("ann"));
    await watched.row("big").waitFor();
    await access.revokeToken({ name: "ann" });
    await page.getByLabel("Token").waitFor();
    await page.getByRole("alert").filter({ hasText: "does not know" }).waitFor();
    expect(await page.locator("#console").innerText()).not.toContain("big");
    await watched.logIn(await make("bob"));
    await watched.row("big").waitFor();
    expect(page.url()).toBe(`${pool.url}/console/claims?q=big`);
    watched.expectNoFaults();
  });

  it("a page says that the controller is silent, and goes on where it was when it is back", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("events?q=train");
    await watched.logIn(pool.adminToken);
    await watched.row("ClaimBound").waitFor();
    await pool.stopController();
    await page.getByRole("alert").filter({ hasText: "has not answered since" }).waitFor();
    // The last known state is still shown, and marked as old.
    await page.locator(".old .row").filter({ hasText: "ClaimBound" }).waitFor();
    await pool.startController();
    await page.locator(".silence").waitFor({ state: "detached" });
    await pool.clients().claims.releaseClaim({ name: "train" });
    await watched.row("ClaimReleased").waitFor();
    expect(await page.locator(".old").count()).toBe(0);
    const ids = await page.locator(".rows .row .cell:nth-child(2)").allInnerTexts();
    expect(ids.toSorted()).toEqual(["ClaimBound", "ClaimCreated", "ClaimReleased"]);
    watched.expectNoFaults();
  });

  it("what is not known is grey, and never green", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("gpus");
    await watched.logIn(pool.adminToken);
    const gpu = watched.row("node-b/0");
    await gpu.locator(".badge.good").waitFor();
    // Its agent reports no usage for this session.
    await watched.row("node-a/0").locator(".meter-unknown").first().waitFor();
    await pool.agent("node-b")[Symbol.asyncDispose]();
    await gpu.locator(".badge.dim").filter({ hasText: "unknown" }).waitFor();
    expect(await gpu.locator(".meter-unknown").count()).toBe(2);
    expect(await gpu.locator(".badge.good, .meter-used").count()).toBe(0);
    await watched.visit("");
    await expect.poll(() => page.locator(".card").first().innerText()).toContain("measured not known");
    expect(await page.locator(".attention").innerText()).toContain("node-b");
    watched.expectNoFaults();
  });

  it("temperature, power and clock of a card are shown to an administrator, and not to its users", async () => {
    await using pool = await startPool();
    const agent = pool.agent("node-a");
    const card = { temperatureCelsius: 41, powerMilliwatts: 90_250, powerLimitMilliwatts: 700_000 };
    agent.figures = [{ uuid: "GPU-0", card: { ...card, smClockMhz: 1980 } }];
    await agent.sync();
    const { secret } = await pool.clients().access.createToken({ name: "ann", role: "user" });
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("gpus");
    await watched.logIn(pool.adminToken);
    await watched.row("node-a/0").getByText("41 °C").waitFor();
    const text = await watched.row("node-a/0").innerText();
    expect(text).toContain("90 W / 700 W");
    expect(text).toContain("1980 MHz");
    await watched.expectAccessible();
    await page.getByRole("button", { name: "Log out" }).click();
    await watched.logIn(secret);
    await watched.row("node-a/0").waitFor();
    expect(await page.locator("#content").innerText()).not.toMatch(/°C|Temperature|700 W/);
    watched.expectNoFaults();
  });

  it("an administrator sees the logins of others and ends one, which its page notices", async () => {
    await using pool = await startPool();
    const { secret } = await pool.clients().access.createToken({ name: "ann", role: "user" });
    await using anns = await WatchedPage.open(browser, pool.url);
    await anns.visit("claims");
    await anns.logIn(secret);
    await anns.row("train").waitFor();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("access");
    await watched.logIn(pool.adminToken);
    await page.getByRole("button", { name: /^End: ann / }).click();
    await watched.expectAccessible();
    const dialog = page.getByRole("dialog");
    expect(await dialog.locator("code").innerText()).toMatch(/^millpond logout --id [0-9a-f]{16}$/);
    await dialog.getByLabel("Reason, for the audit").fill("laptop lost");
    await dialog.getByRole("button", { name: "End", exact: true }).click();
    await page.getByRole("button", { name: /^End: ann / }).waitFor({ state: "detached" });
    await anns.page.getByLabel("Token").waitFor();
    const { records } = await pool.clients().access.listAudit({});
    expect(records.findLast(({ what }) => what === "AccessService/RevokeLogin")).toMatchObject({
      who: "file:user",
      why: "laptop lost",
      result: "ok",
    });
    watched.expectNoFaults();
  });

  it("a user sees claims of the own tenant and is not offered what the token may not do", async () => {
    await using pool = await startPool();
    const { access, queues } = pool.clients();
    await queues.putTenant({ tenant: { name: "team-a" } });
    const { secret } = await access.createToken({ name: "ann", role: "user", tenant: "team-a" });
    await pool
      .clients(secret)
      .claims.createClaim({ claim: { name: "mine", memoryBytes: GiB, leaseSeconds: 3600 } });
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("claims");
    await watched.logIn(secret);
    await watched.row("mine").waitFor();
    expect(await page.locator(".rows .row").count()).toBe(1);
    for (const hidden of ["Tokens", "Audit"]) {
      expect(await page.getByRole("navigation").getByRole("link", { name: hidden }).count()).toBe(0);
    }
    await watched.visit("audit");
    await page.getByRole("alert").filter({ hasText: "needs a token of the role" }).waitFor();
    await watched.visit("nodes/node-a");
    await watched.row("node-a/0").waitFor();
    expect(await page.getByRole("button", { name: /Cordon|Drain/ }).count()).toBe(0);
    await watched.visit("claims/train");
    await page.getByRole("alert").filter({ hasText: "there is no claim" }).first().waitFor();
    expect(await page.locator("#content").innerText()).not.toContain("python");
    watched.expectNoFaults();
  });

  it("Chinese, dark and narrow, by what the browser asks for", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url, {
      locale: "zh-CN",
      colorScheme: "dark",
      viewport: { width: 420, height: 800 },
    });
    const { page } = watched;
    await watched.visit("gpus");
    await page.getByLabel("令牌").fill(pool.adminToken);
    await watched.expectAccessible();
    await page.getByRole("button", { name: "登录" }).click();
    await watched.row("node-a/0").waitFor();
    expect(await page.evaluate("getComputedStyle(document.body).backgroundColor")).toBe("rgb(18, 23, 26)");
    await watched.expectAccessible();
    await page.getByLabel("语言").selectOption("en");
    await page.getByRole("heading", { name: "GPUs" }).waitFor();
    await page.getByLabel("Colours").selectOption("light");
    expect(await page.evaluate("getComputedStyle(document.body).backgroundColor")).toBe("rgb(246, 247, 248)");
    await watched.expectAccessible();
    watched.expectNoFaults();
  });

  /** Scrolls by many pages, one a frame; counts cells with content then, and when they are all drawn again. */
  const fling = `new Promise((resolve) => {
    const table = document.querySelector(".table");
    const full = () => table.querySelectorAll(".rows .cell:not(:empty)").length;
    const names = () => table.querySelectorAll(".rows a").length;
    let left = 30;
    const step = () => {
      table.scrollTop = left * 3000;
      if (left-- > 0) requestAnimationFrame(step);
      else setTimeout(() => rest({ fast: full(), names: names() }), 0);
    };
    const rest = (counts) =>
      full() > counts.fast ? resolve({ ...counts, resting: full() }) : setTimeout(rest, 5, counts);
    requestAnimationFrame(step);
  })`;

  it("10,000 GPUs and 5,000 claims are shown by a few dozen rows at a time", async () => {
    const devices = Array.from({ length: 8 }, (_, index) => fakeDevice(index, 80n * GiB));
    const names = Array.from({ length: 1250 }, (_, index) => `node-${index}`);
    // Nodes with claims are in contact.
    const living = names.slice(-10).map((name) => [name, devices] as const);
    await using pool = await ConsolePool.start(Object.fromEntries(living));
    await pool.addSilentNodes(names.slice(0, -10), devices);
    const { claims } = pool.clients();
    for (let made = 0; made < 5000; made += 250) {
      const batch = Array.from({ length: 250 }, (_, index) =>
        claims.createClaim({
          claim: { name: `claim-${made + index}`, memoryBytes: GiB, leaseSeconds: 3600 },
        }),
      );
      await Promise.all(batch);
    }
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("gpus");
    await watched.logIn(pool.adminToken);
    for (const [view, last, count] of [
      ["gpus", "node-1249/7", 10_000],
      ["claims", "claim-4999", 5000],
    ] as const) {
      await watched.visit(`${view}?sort=${view === "gpus" ? "gpu" : "name"}`);
      await expect
        .poll(() => page.locator("[role=table]").getAttribute("aria-rowcount"))
        .toBe(`${count + 1}`);
      await page.evaluate(`document.querySelector(".table").scrollTop = 1e9`);
      await watched.row(last).waitFor();
      expect(await page.locator(".rows .row").count()).toBeLessThan(80);
      // While rows pass too fast to be read, their names are drawn; when scrolling rests, the rest of them.
      const cells = await page.evaluate<{ fast: number; resting: number; names: number }>(fling);
      expect(cells.fast).toBe(cells.names);
      expect(cells.resting).toBeGreaterThan(4 * cells.names);
    }
    watched.expectNoFaults();
  });

  it("a page of another origin frames nothing, and changes nothing by the login of whoever looks at it", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { context } = watched;
    await watched.visit("nodes");
    await watched.logIn(pool.adminToken);
    await watched.row("node-a").waitFor();
    // On another port of the same host, which is the same site, so that cookies are sent.
    await using evil = await serve("<!doctype html><title>evil</title><body></body>");
    const foreign = await context.newPage();
    await foreign.goto(evil.url);
    const drain = `${pool.url}/millpond.v1.PoolService/DrainNode`;
    const tries = await foreign.evaluate<readonly string[]>(`(async () => {
      const body = JSON.stringify({ name: "node-a" });
      const said = (call) => call.then(({ status, type }) => type + " " + status, () => "refused");
      const send = (headers, mode) =>
        said(fetch("${drain}", { method: "POST", credentials: "include", mode, headers, body }));
      return [
        await send({ "content-type": "text/plain" }, "no-cors"),
        await send({ "content-type": "application/json", "millpond-console": "1" }, "cors"),
        await send({ "content-type": "application/json" }, "cors"),
        await said(fetch("${pool.url}/console/session", { credentials: "include" })),
      ];
    })()`);
    expect(tries).toEqual(["opaque 0", "refused", "refused", "refused"]);
    await foreign.evaluate(`document.body.innerHTML = '<form method="post" enctype="text/plain" action="${drain}"></form>';
      document.forms[0].submit()`);
    await foreign.waitForURL(drain);
    const framing = await context.newPage();
    await framing.goto(evil.url);
    await framing.evaluate(`document.body.innerHTML = '<iframe src="${pool.url}/console/nodes"></iframe>'`);
    await expect.poll(() => framing.frames().at(-1)?.url()).toMatch(/^chrome-error:/);
    const { node } = await pool.clients().pool.getNode({ name: "node-a" });
    expect(node?.cordoned).toBe(false);
    watched.expectNoFaults();
  });

  it("tables are used by keys alone", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("nodes");
    await watched.logIn(pool.adminToken);
    await watched.row("node-b").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("node-b");
    await watched.row("node-a").waitFor({ state: "detached" });
    expect(page.url()).toContain("?q=node-b");
    await page.getByRole("searchbox").fill("");
    await page.getByRole("table").focus();
    await page.keyboard.press("End");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Node node-b" }).waitFor();
    await page.goBack();
    await page.getByRole("columnheader", { name: "GPUs" }).getByRole("button").press("Enter");
    await expect.poll(() => page.url()).toContain("sort=-gpus");
    watched.expectNoFaults();
  });

  it("a node is cordoned by keys alone: the focus is seen, stays in the dialog, and returns", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("nodes/node-b");
    await watched.logIn(pool.adminToken);
    await page.getByRole("button", { name: "Cordon", exact: true }).waitFor();
    const focused = page.locator(":focus");
    const tabTo = async (name: string) => {
      for (let presses = 0; presses < 40; presses += 1) {
        await page.keyboard.press("Tab");
        if ((await focused.count()) === 1 && (await focused.innerText()) === name) return;
      }
      throw new Error(`no Tab leads to ${name}`);
    };
    await page.locator("body").press("Tab");
    expect(await focused.getAttribute("class")).toBe("skip");
    await page.keyboard.press("Enter");
    expect(await focused.getAttribute("id")).toBe("content");
    await tabTo("Cordon");
    expect(await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")).not.toBe("none");
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    // Between its last and its first element the browser itself has the focus, and the page's body.
    const isOutside = () =>
      page.evaluate(
        "document.activeElement !== document.body && document.activeElement.closest('dialog') === null",
      );
    for (let presses = 0; presses < 12; presses += 1) {
      await page.keyboard.press("Tab");
      expect(await isOutside()).toBe(false);
    }
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    expect(await focused.innerText()).toBe("Cordon");
    await page.keyboard.press("Enter");
    await dialog.getByLabel("Reason").focus();
    await page.keyboard.type("its fan");
    await page.keyboard.press("Enter");
    await page.getByText("ready, cordoned").waitFor();
    watched.expectNoFaults();
  });

  it("nothing moves for those who prefer reduced motion", async () => {
    await using pool = await startPool();
    const moving = async (reducedMotion: "reduce" | "no-preference") => {
      await using watched = await WatchedPage.open(browser, pool.url, { reducedMotion });
      await watched.visit("nodes/node-a");
      await watched.logIn(pool.adminToken);
      await watched.page.locator(".meter-used").first().waitFor();
      return await watched.page.evaluate(
        `[...document.querySelectorAll("*")].map((element) => getComputedStyle(element))
          .filter((style) => style.transitionDuration !== "0s" || style.animationName !== "none").length`,
      );
    };
    expect(await moving("no-preference")).toBeGreaterThan(0);
    expect(await moving("reduce")).toBe(0);
  });
});

it("the script is small", () => {
  const scripts = readdirSync(consoleDirectory).filter((name) => name.endsWith(".js"));
  const read = (name: string) => readFileSync(join(consoleDirectory, name));
  const all = scripts.reduce((sum, name) => sum + read(name).byteLength, 0);
  expect(all).toBeLessThan(300_000);
  // Chinese is loaded on demand.
  expect(scripts.map((name) => name.replace(/-\w{8}\.js$/, "")).toSorted()).toEqual(["chinese", "console"]);
  const script = scripts.find((name) => name.startsWith("console-")) ?? "";
  expect(gzipSync(read(script)).byteLength).toBeLessThan(90_000);
});
