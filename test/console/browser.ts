// SPDX-License-Identifier: Apache-2.0
// A real browser in front of a real controller, with agents that speak the real protocol and have what devices a test says.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import {
  AccessService,
  ClaimService,
  type DeviceReportSchema,
  PoolService,
  QueueService,
} from "@millpond/api";
import { type Controller, type ControllerOptions, startController, systemClock } from "@millpond/controller";
import { FakeAgent, type FakeAgentOptions } from "@millpond/controller/testing/fake-agent";
import { makeTransport } from "@millpond/controller/testing/transport";
import axe from "axe-core";
import { pino } from "pino";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { expect } from "vitest";

export { launchBrowser, missingBrowser } from "../support/chromium.ts";

export type Devices = readonly MessageInitShape<typeof DeviceReportSchema>[];

type PoolOptions = Pick<ControllerOptions, "oidc">;

/** A controller that can be stopped and restarted at the same address, and agents that outlive it. */
export class ConsolePool implements AsyncDisposable {
  readonly #directory: string;
  readonly #agents: FakeAgent[] = [];
  readonly #options: PoolOptions;
  #controller: Controller;
  #isUp = true;

  private constructor(directory: string, controller: Controller, options: PoolOptions) {
    this.#directory = directory;
    this.#controller = controller;
    this.#options = options;
  }

  static async start(
    nodes: Readonly<Record<string, Devices>>,
    options: PoolOptions = {},
    host: FakeAgentOptions["host"] = {},
  ): Promise<ConsolePool> {
    const directory = mkdtempSync(join(tmpdir(), "millpond-console-"));
    const pool = new ConsolePool(directory, await start(directory, "127.0.0.1:0", options), options);
    for (const [node, devices] of Object.entries(nodes)) {
      const { url, agentToken: token } = pool.#controller;
      const agent = new FakeAgent({ url, token, clock: systemClock, node, devices, host });
      agent.isPersistent = true;
      agent.mayLoseController = true;
      pool.#agents.push(await agent.start());
    }
    return pool;
  }

  /** Nodes whose agents have called only once: with thousands of nodes, repeated calls would overload the test machine. */
  async addSilentNodes(names: readonly string[], devices: Devices): Promise<void> {
    const { url, agentToken: token } = this.#controller;
    const atOnce = 40;
    for (let first = 0; first < names.length; first += atOnce) {
      const agents = names
        .slice(first, first + atOnce)
        .map((node) => new FakeAgent({ url, token, clock: systemClock, node, devices }));
      await Promise.all(agents.map((agent) => agent.sync()));
    }
  }

  get url(): string {
    return this.#controller.url;
  }

  get adminToken(): string {
    return this.#controller.userToken;
  }

  agent(node: string): FakeAgent {
    const agent = this.#agents.find((each) => each.node === node);
    if (agent === undefined) throw new Error(`there is no agent ${node}`);
    return agent;
  }

  clients(token = this.adminToken): {
    readonly access: Client<typeof AccessService>;
    readonly claims: Client<typeof ClaimService>;
    readonly pool: Client<typeof PoolService>;
    readonly queues: Client<typeof QueueService>;
  } {
    const transport = makeTransport(this.url, token);
    return {
      access: createClient(AccessService, transport),
      claims: createClient(ClaimService, transport),
      pool: createClient(PoolService, transport),
      queues: createClient(QueueService, transport),
    };
  }

  async stopController(): Promise<void> {
    this.#isUp = false;
    await this.#controller[Symbol.asyncDispose]();
  }

  async startController(): Promise<void> {
    this.#controller = await start(this.#directory, new URL(this.url).host, this.#options);
    this.#isUp = true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#agents.map((agent) => agent[Symbol.asyncDispose]()));
    if (this.#isUp) await this.stopController();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

async function start(stateDirectory: string, listen: string, options: PoolOptions): Promise<Controller> {
  return await startController({ ...options, stateDirectory, listen, log: pino({ level: "silent" }) });
}

/** A page that records everything that it should not do; each record fails the test at its end. */
export class WatchedPage implements AsyncDisposable {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly #url: string;
  readonly #faults: string[] = [];
  /** Origins to which the browser is redirected, in addition to that of the pool. */
  readonly mayVisit: string[] = [];

  private constructor(context: BrowserContext, page: Page, url: string) {
    this.context = context;
    this.page = page;
    this.#url = url;
  }

  static async open(
    browser: Browser,
    url: string,
    options: Parameters<Browser["newContext"]>[0] = {},
  ): Promise<WatchedPage> {
    const context = await browser.newContext({ viewport: { width: 1600, height: 900 }, ...options });
    const page = await context.newPage();
    const watched = new WatchedPage(context, page, url);
    watched.#watch();
    return watched;
  }

  #watch(): void {
    const { page } = this;
    page.on("pageerror", (error) => this.#faults.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => {
      this.#faults.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("console", (message) => {
      // The browser itself logs each unsuccessful response, and an unreachable controller.
      if (message.type() === "error" && !/Failed to load resource/.test(message.text())) {
        this.#faults.push(`console: ${message.text()}`);
      }
    });
    page.on("request", (request) => {
      const { origin, protocol } = new URL(request.url());
      if (protocol !== "blob:" && origin !== new URL(this.#url).origin && !this.mayVisit.includes(origin)) {
        this.#faults.push(`request to ${request.url()}`);
      }
    });
  }

  async visit(path: string): Promise<void> {
    await this.page.goto(`${this.#url}/console/${path}`);
  }

  /** Logs in, and resolves when the controller has answered: an earlier visit to another page would cancel the request. */
  async logIn(token: string): Promise<void> {
    await this.page.getByLabel("Token").fill(token);
    const answer = this.page.waitForResponse(
      (response) => response.request().method() === "POST" && response.url().endsWith("/console/session"),
    );
    await this.page.getByRole("button", { name: "Log in" }).click();
    await answer;
  }

  /** The row of a table, if it exists. */
  row(text: string) {
    return this.page.getByRole("row").filter({ hasText: text });
  }

  /** Fails with each finding and its location. */
  async expectAccessible(): Promise<void> {
    await this.page.waitForFunction("document.fonts.ready.then(() => true)");
    await this.page.evaluate(axe.source);
    const found = await this.page.evaluate<readonly { readonly id: string; readonly where: string[] }[]>(
      `axe.run().then(({ violations }) => violations.map(({ id, nodes }) => ({ id, where: nodes.map(({ html, failureSummary }) => html + "\\n" + failureSummary) })))`,
    );
    expect(found, this.page.url()).toEqual([]);
  }

  /** Fails if the page did something that it should not. */
  expectNoFaults(): void {
    expect(this.#faults).toEqual([]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.context.close();
  }
}
