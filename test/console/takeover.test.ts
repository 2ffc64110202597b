// SPDX-License-Identifier: Apache-2.0
// Pages of the console in Chromium while the controller that leads is killed and another takes over.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { createClient } from "@connectrpc/connect";
import { ClaimService } from "@millpond/api";
import { systemClock } from "@millpond/controller";
import { Cluster } from "@millpond/controller/testing/cluster";
import { FakeAgent, fakeDevice } from "@millpond/controller/testing/fake-agent";
import { missingPostgres } from "@millpond/controller/testing/postgres-server";
import { expect, it } from "vitest";
import { launchBrowser, missingBrowser, WatchedPage } from "./browser.ts";

const GiB = 1n << 30n;
const missing = missingBrowser || (missingPostgres === undefined ? "" : ` (${missingPostgres})`);

/** A single address for several controllers, like a load balancer's: connections go to the first one that accepts them. */
class Balancer implements AsyncDisposable {
  readonly #server = createServer({ pauseOnConnect: true }, (socket) => void this.#relay(socket));
  readonly #targets: readonly URL[];
  readonly #sockets = new Set<Socket>();

  constructor(urls: readonly string[]) {
    this.#targets = urls.map((url) => new URL(url));
  }

  async start(): Promise<this> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async #relay(client: Socket): Promise<void> {
    this.#keep(client);
    for (const { hostname, port } of this.#targets) {
      const server = connect(Number(port), hostname);
      this.#keep(server);
      const isThere = await once(server, "connect").then(
        () => true,
        () => false,
      );
      if (isThere) {
        client.on("close", () => server.destroy());
        server.on("close", () => client.destroy());
        client.pipe(server).pipe(client);
        return;
      }
    }
    client.destroy();
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("error", () => undefined).on("close", () => this.#sockets.delete(socket));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await once(this.#server, "close");
  }
}

it.skipIf(missing !== "")(
  `pages of each controller, and of one address for both, survive the death of the leader${missing}`,
  async () => {
    await using cluster = await Cluster.start([0, 0]);
    const urls = cluster.urls.split(",");
    const { listen } = await cluster.untilLed();
    const leader = `http://${listen}`;
    const follower = urls.find((url) => url !== leader) ?? "";
    await using balancer = await new Balancer([leader, follower]).start();
    await using agent = new FakeAgent({
      url: cluster.urls,
      token: cluster.agentToken,
      clock: systemClock,
      node: "node-a",
      devices: [fakeDevice(0, 8n * GiB)],
    });
    agent.isPersistent = true;
    agent.mayLoseController = true;
    await agent.start();
    const claims = createClient(ClaimService, cluster.transport());
    const make = async (name: string) => {
      await claims.createClaim({ claim: { name, memoryBytes: GiB, leaseSeconds: 3600 } });
    };
    await make("before");

    await using browser = await launchBrowser();
    const open = async (url: string, view: string, row: string) => {
      const watched = await WatchedPage.open(browser, url);
      await watched.visit(view);
      await watched.logIn(cluster.userToken);
      await watched.row(row).first().waitFor();
      return watched;
    };
    await using ofLeader = await open(leader, "claims", "before");
    // Followers forward calls about nodes, and answer those about events themselves.
    await using ofFollower = await open(follower, "gpus", "node-a/0");
    await using ofBoth = await open(balancer.url, "nodes/node-a", "node-a/0");
    await using events = await open(balancer.url, "events?q=claimcreated", "claim/before");
    const pages = [ofLeader, ofFollower, ofBoth, events];
    const silence = ({ page }: WatchedPage) => page.locator(".silence");
    expect(await Promise.all(pages.map((each) => silence(each).count()))).toEqual([0, 0, 0, 0]);
    await ofFollower.row("node-a/0").filter({ hasText: "13 %" }).waitFor();

    const repair = await cluster.strike("leader killed");
    // A page without an answer reports that, and marks its content as old. The other pages may retry only when there is a new
    // leader.
    await silence(ofLeader).filter({ hasText: "has not answered since" }).waitFor();
    await ofLeader.page.locator(".old").getByRole("row").nth(1).waitFor();
    await make("after");
    await Promise.all(
      [ofFollower, ofBoth].map(async (each) => {
        await silence(each).waitFor({ state: "detached" });
        await each.row("node-a/0").filter({ hasText: "26 %" }).waitFor();
        // Each watch of a page finds the new leader by itself.
        await each.page.locator(".old").first().waitFor({ state: "detached" });
      }),
    );
    // The new leader continues where the old one ended: no event is missed, and none is shown twice.
    await events.row("claim/after").waitFor();
    const subjects = await events.page.locator(".rows .row .cell:nth-child(3)").allInnerTexts();
    expect(subjects).toEqual(["claim/after", "claim/before"]);

    // The address of the dead controller stays silent until it is restarted, now as a follower.
    expect(await silence(ofLeader).count()).toBe(1);
    expect(await ofLeader.row("after").count()).toBe(0);
    await repair();
    await silence(ofLeader).waitFor({ state: "detached" });
    await ofLeader.row("after").waitFor();
    await ofLeader.page.getByRole("navigation").getByRole("link", { name: "Pool", exact: true }).click();
    await expect
      .poll(() => ofLeader.page.locator(".card").last().innerText())
      .toContain(`leads: ${follower}`);
    for (const each of pages) each.expectNoFaults();
  },
);
