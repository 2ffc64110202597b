// SPDX-License-Identifier: Apache-2.0
// Hostile texts in every member of every answer of the controller, and in every place of the address: the console in
// Chromium shows them, and does nothing else with them.
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type DescMethod, fromBinary, toBinary } from "@bufbuild/protobuf";
import { AccessService, ClaimService, DeviceHealth, PoolService, QueueService } from "@millpond/api";
import { fakeDevice } from "@millpond/controller/testing/fake-agent";
import type { Browser, Page, Route } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Random } from "../support/random.ts";
import { ConsolePool, launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";
import { contentOf, HostileTexts } from "./hostile-texts.ts";
import { startPool } from "./small-pool.ts";

const GiB = 1n << 30n;

/** MILLPOND_TEST_PAGES=50 for a long run. */
const rounds = Number(process.env["MILLPOND_TEST_PAGES"] ?? 3);

/** Texts that run a script, or break out of an attribute, when inserted as HTML; at the beginning of a field, a formula. */
const mark = "<img src=x onerror=alert(1)>";
const hostile = `=1+1 ${mark}"'><script>alert(2)</script>{{7*7}}\u202ejavascript:alert(3)`;

/** Members that at least one of the views shows. */
const shownMembers = [
  "Allocation.node",
  ...["result", "role", "subject", "tenant", "what", "who", "why"].map((each) => `AuditRecord.${each}`),
  ...["gang", "labels", "labels (key)", "name", "owner", "queue", "reason", "tenant"].map(
    (each) => `Claim.${each}`,
  ),
  ...["cordonReason", "driverVersion", "healthReason", "name"].map((each) => `Device.${each}`),
  ...["kind", "message", "subject"].map((each) => `Event.${each}`),
  "ExplainClaimResponse.waitsFor",
  "Fact.subject",
  "GetVersionResponse.version",
  ...["agentUrl", "agentVersion", "cordonReason", "hostname", "labels", "labels (key)", "name", "reason"].map(
    (each) => `Node.${each}`,
  ),
  "Queue.name",
  "Reason.text",
  ...["claim", "clientHost", "node", "program", "transport"].map((each) => `Session.${each}`),
  "Tenant.name",
  ...["createdBy", "name", "role", "tenant"].map((each) => `Token.${each}`),
  "Usage.queue",
  "Usage.tenant",
  "VirtualGpu.uuid",
];

const methods = new Map<string, DescMethod>(
  [AccessService, ClaimService, PoolService, QueueService].flatMap(({ typeName, methods: each }) =>
    each.map((method) => [`/${typeName}/${method.name}`, method] as const),
  ),
);

const views = [
  "",
  "nodes",
  "nodes/node-b",
  "gpus",
  "placement",
  "claims",
  "claims/train",
  "claims/big",
  "sessions",
  "queues",
  "tenants",
  "usage",
  "events",
  "access",
  "audit",
  "connect",
] as const;

/** Answers a call of the page with the controller's answer, in which each text is replaced. */
async function spoil(route: Route, texts: HostileTexts): Promise<void> {
  const response = await route.fetch();
  const method = methods.get(new URL(route.request().url()).pathname);
  if (method === undefined) throw new Error(`no method of ${route.request().url()}`);
  if (response.status() !== 200) {
    const refusal = { code: "not_found", message: texts.make("error") };
    await route.fulfill({ response, body: JSON.stringify(refusal) });
    return;
  }
  const answer = fromBinary(method.output, await response.body());
  texts.spoil(method.output, answer);
  await route.fulfill({ response, body: Buffer.from(toBinary(method.output, answer)) });
}

/**
 * Fails if a text was interpreted as anything but text.
 *
 * @returns the members whose texts are in the page
 */
async function judge(page: Page, texts: HostileTexts, where: string): Promise<Set<string>> {
  const { texts: shown, foreign } = await contentOf(page);
  expect(foreign, where).toEqual([]);
  return texts.find(shown);
}

const none = new HostileTexts(new Random(0));

/** A shell that has only our programs, which record how they were called. */
class Shell implements Disposable {
  readonly #directory = mkdtempSync(join(tmpdir(), "millpond-shell-"));
  readonly #programs = join(this.#directory, "bin");
  readonly #work = join(this.#directory, "work");

  constructor() {
    mkdirSync(this.#programs);
    mkdirSync(this.#work);
    for (const name of ["millpond", "docker"]) {
      const path = join(this.#programs, name);
      writeFileSync(
        path,
        `#!/bin/sh\nfor each; do case $each in --controller*) echo "$0 $each"; esac; done\n`,
      );
      chmodSync(path, 0o755);
    }
  }

  /** @returns what the command did in addition to calling our programs; empty: nothing */
  run(command: string): string {
    const isScript = /^(?:millpond|docker|printf) /.test(command);
    if (!isScript) return command.includes("pwned") ? command : "";
    const said = execFileSync("/bin/sh", ["-c", command], {
      cwd: this.#work,
      env: { PATH: this.#programs },
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
    return existsSync(join(this.#work, "pwned")) ? "it wrote a file" : said;
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

describe.skipIf(missingBrowser !== "")(`hostile texts in the console${missingBrowser}`, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser.close();
  });

  it("are shown as they are, whichever member of an answer they are in", async () => {
    await using pool = await startPool();
    const { access, pool: nodes, queues } = pool.clients();
    await queues.putTenant({ tenant: { name: "team-a", limit: { gpuMilli: 1000n } } });
    await access.createToken({ name: "ann", role: "user", tenant: "team-a" });
    await nodes.cordonNode({ name: "node-b", cordoned: true, reason: "fans" });
    await nodes.cordonNode({ name: "node-b", deviceUuid: "GPU-0", cordoned: true, reason: "fans" });
    const seen = new Set<string>();
    for (let seed = 1; seed <= rounds; seed += 1) {
      const texts = new HostileTexts(new Random(seed));
      await using watched = await WatchedPage.open(browser, pool.url);
      const { page } = watched;
      await watched.visit("");
      await watched.logIn(pool.adminToken);
      await page.getByRole("heading", { name: "Pool" }).waitFor();
      await page.route(/\/millpond\.v1\./, (route) => spoil(route, texts));
      for (const view of views) {
        const where = `seed ${seed}, ${view}`;
        await watched.visit(view);
        await expect
          .poll(() => page.locator("#content .answer").count(), { message: where })
          .toBeGreaterThan(view === "connect" ? -1 : 0);
        await expect
          .poll(
            () =>
              page
                .locator("#content [role=status]")
                .filter({ hasText: /^Loading/ })
                .count(),
            {
              message: where,
            },
          )
          .toBe(0);
        for (const member of await judge(page, texts, where)) seen.add(member);
        // Confirmation dialogs repeat the names.
        for (const button of await page.locator("#content button:has(+ dialog)").all()) {
          await button.click();
          for (const member of await judge(page, texts, where)) seen.add(member);
          await page.keyboard.press("Escape");
        }
      }
      watched.expectNoFaults();
    }
    // No member that users, programs, agents or hosts can write is missing.
    expect([...seen]).toEqual(expect.arrayContaining(shownMembers));
  });

  it("are shown as they are when they come by calls, reasons and reports of agents, as far as those take them", async () => {
    const device = { ...fakeDevice(0, 4n * GiB), name: hostile };
    const ill = { ...fakeDevice(1, 4n * GiB), health: DeviceHealth.UNHEALTHY, healthReason: hostile };
    await using pool = await ConsolePool.start(
      { "node-a": [device, ill] },
      {},
      { hostname: hostile, agentVersion: hostile },
    );
    const { access, claims, pool: nodes, queues } = pool.clients();
    const headers = { "millpond-reason": encodeURIComponent(hostile) };
    await claims.createClaim(
      { claim: { name: "train", memoryBytes: GiB, owner: hostile, leaseSeconds: 3600 } },
      { headers },
    );
    const { ticket } = await claims.createTicket({ claim: "train", program: hostile, clientHost: hostile });
    await pool.agent("node-a").openSession(ticket);
    await nodes.cordonNode({ name: "node-a", cordoned: true, reason: hostile });
    // Names and labels allow few characters, so every call that takes one refuses these texts.
    const refused = [
      claims.createClaim({ claim: { name: hostile } }),
      claims.createClaim({ claim: { gang: hostile, gangSize: 2 } }),
      claims.createClaim({ claim: { labels: { [hostile]: "a" } } }),
      claims.createClaim({ claim: { labels: { a: hostile } } }),
      claims.createClaim({ claim: { queue: hostile } }),
      claims.createClaim({ claim: { gang: "a", gangSize: 2, rendezvous: hostile } }),
      nodes.labelNode({ name: "node-a", set: { [hostile]: "a" } }),
      nodes.labelNode({ name: "node-a", set: { a: hostile } }),
      queues.putQueue({ queue: { name: hostile } }),
      queues.putQueue({ queue: { name: "a", parent: hostile } }),
      queues.putTenant({ tenant: { name: hostile } }),
      queues.putTenant({ tenant: { name: "a", userLimits: { users: [{ user: hostile }] } } }),
      access.createToken({ name: hostile, role: "user" }),
      access.createToken({ name: "a", role: hostile }),
      access.createToken({ name: "a", role: "agent", node: hostile }),
    ];
    expect((await Promise.allSettled(refused)).map(({ status }) => status)).toEqual(
      refused.map(() => "rejected"),
    );
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("");
    await watched.logIn(pool.adminToken);
    for (const view of [
      "",
      "nodes",
      "gpus",
      "claims",
      "claims/train",
      "sessions",
      "events",
      "nodes/node-a",
      "audit",
    ]) {
      await watched.visit(view);
      await expect.poll(() => page.locator("#content").innerText(), { message: view }).toContain(mark);
      await judge(page, none, view);
    }
    // A spreadsheet runs no formula from others.
    const download = page.waitForEvent("download");
    await watched.visit("claims");
    await watched.row("train").waitFor();
    await page.getByRole("button", { name: "CSV" }).click();
    const saved = readFileSync(await (await download).path(), "utf8");
    expect(saved).toContain(`"'${hostile.replaceAll('"', '""').replaceAll("\u202e", " ")}"`);
    watched.expectNoFaults();
  });

  it("in an address are shown as they are, and are in no command that users copy from the page", async () => {
    await using pool = await startPool();
    await using watched = await WatchedPage.open(browser, pool.url);
    const { page } = watched;
    await watched.visit("");
    await watched.logIn(pool.adminToken);
    await page.getByRole("heading", { name: "Pool" }).waitFor();
    using shell = new Shell();
    const texts = new HostileTexts(new Random(5));
    for (let round = 0; round < 2 * rounds; round += 1) {
      const text =
        round === 0
          ? "--controller=https://evil.example"
          : `${texts.make("address")} ${texts.make("address")}`;
      const inAddress = encodeURIComponent(text);
      const query = `n=${inAddress}&m=${inAddress}&c=${inAddress}&model=${inAddress}&image=${inAddress}`;
      for (const address of [
        `claims/${inAddress}`,
        `nodes/${inAddress}`,
        `claims?q=${inAddress}&sort=${inAddress}&state=${inAddress}&ended=${inAddress}`,
        `usage?since=${inAddress}`,
        `placement?by=${inAddress}&${query}`,
        `connect?${query}`,
        `connect?n=1&m=1Gi&c=50%25&image=${inAddress}`,
        // With a dot it is the name of a file that does not exist.
        inAddress.replaceAll(".", "-"),
      ]) {
        await watched.visit(address);
        await page.getByRole("navigation").waitFor();
        await page
          .locator("#content .answer, #content .trouble, #content .snippets, #content > .quiet")
          .first()
          .waitFor();
        await judge(page, none, address);
        if (/^(?:claims|nodes)\//.test(address)) {
          expect(await page.locator("h1").textContent()).toContain(text);
        }
        for (const command of await page.locator(".command code").allTextContents()) {
          expect(shell.run(command), `${address}: ${command}`).toBe("");
        }
      }
    }
    watched.expectNoFaults();
  });
});
