// SPDX-License-Identifier: Apache-2.0

// Simulates the API server of Kubernetes 1.36 for tests without a real one: objects, watches, patches, admission by
// webhooks, and the rights of the manifests, over HTTP. Nothing schedules or runs pods; tests do.

import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { KubernetesObject } from "@kubernetes/client-node";
import { type Cluster, ClusterConfig, connectCluster } from "../../cluster/cluster.ts";
import { admit } from "./admission.ts";
import { type Change, ObjectStore, Refused, type StoredObject } from "./object-store.ts";
import { applyPatch, type Json, PatchRefused } from "./patches.ts";
import { Rights } from "./rights.ts";
import { minors, violations } from "./schemas.ts";

const systemNamespace = "millpond-system";

/** A path of the API, parsed. */
interface Target {
  /** `group/resource`. */
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly subresource: string;
}

interface PodSpec {
  readonly nodeName?: string;
  readonly schedulingGates?: readonly unknown[];
  readonly resourceClaims?: readonly { readonly resourceClaimName?: string }[];
}

interface Watcher {
  readonly response: ServerResponse;
  readonly target: Target;
  readonly query: URLSearchParams;
}

export class PlayedApiServer implements AsyncDisposable {
  readonly store = new ObjectStore();
  readonly rights: Rights;
  /** Requests that were refused because a service account lacked the right. */
  readonly denied: string[] = [];
  /** Whether watches get bookmarks. */
  hasBookmarks = true;
  /** Kinds (`group/resource`) of which no more objects may be created, as by a ResourceQuota. */
  readonly exhausted = new Set<string>();
  /** What a ValidatingAdmissionPolicy says of requests, by their verb and kind (`create group/resource`). */
  readonly policies = new Map<string, string>();
  #server: Server;
  #port = 0;
  #cluster: Cluster | undefined;
  readonly #watchers = new Set<Watcher>();

  private constructor(manifests: readonly KubernetesObject[]) {
    this.rights = new Rights(manifests);
    this.#server = this.#listenWith();
    this.store.onChange((change) => {
      for (const watcher of this.#watchers) sendChange(watcher, change);
    });
    for (const name of ["default", "kube-system", systemNamespace])
      this.store.create("/namespaces", "", { metadata: { name } });
    for (const object of manifests) {
      if (object.kind?.endsWith("WebhookConfiguration") === true)
        this.store.create(`admissionregistration.k8s.io/${object.kind.toLowerCase()}s`, "", { ...object });
      if (object.kind === "DeviceClass")
        this.store.create("resource.k8s.io/deviceclasses", "", { ...object });
    }
  }

  /** @param manifests The objects of an installation, from which accounts get their rights. */
  static async start(manifests: readonly KubernetesObject[]): Promise<PlayedApiServer> {
    const server = new PlayedApiServer(manifests);
    await server.#listen();
    return server;
  }

  /** The connection of an administrator. */
  get cluster(): Cluster {
    return (this.#cluster ??= connectCluster(this.configFor("admin")));
  }

  /** @param user The name of a service account of the installation; any other user may do everything. */
  configFor(user: string): ClusterConfig {
    const config = new ClusterConfig();
    config.loadFromOptions({
      clusters: [{ name: "test", server: `http://127.0.0.1:${this.#port}`, skipTLSVerify: true }],
      users: [{ name: user, token: user }],
      contexts: [{ name: "test", cluster: "test", user }],
      currentContext: "test",
    });
    return config;
  }

  /** Ends all connections, and restarts on the same port without the earlier events. */
  async restart(): Promise<void> {
    await this.stop();
    this.store.forgetHistory();
    await this.resume();
  }

  /** Ends all connections, and takes no others until it is resumed. */
  async stop(): Promise<void> {
    await this.#close();
    // By then its connections have ended.
    this.#cluster = undefined;
  }

  async resume(): Promise<void> {
    this.#server = this.#listenWith();
    await this.#listen();
  }

  /** Acts as a scheduler: binds a pod; refused for pods that wait behind a gate. */
  bind(namespace: string, name: string, nodeName: string): void {
    const pod = this.store.get("/pods", namespace, name);
    const spec = pod["spec"] as { schedulingGates?: readonly unknown[] };
    if ((spec.schedulingGates ?? []).length > 0) throw new Refused(409, "the pod has scheduling gates");
    this.store.replace("/pods", pod, { ...pod, spec: { ...spec, nodeName } });
  }

  /** From now on pods without a gate are bound to a node as soon as their ResourceClaims exist. */
  schedule(nodeName: string): void {
    const bindAll = (): void => {
      for (const pod of this.store.list("/pods")) {
        const { metadata, spec } = pod as StoredObject & { spec: PodSpec };
        const isPlaceable =
          spec.nodeName === undefined &&
          (spec.schedulingGates ?? []).length === 0 &&
          metadata.deletionTimestamp === undefined;
        const { namespace = "", name } = metadata;
        const hasClaims = (spec.resourceClaims ?? []).every(
          ({ resourceClaimName = "" }) =>
            this.store.find("resource.k8s.io/resourceclaims", namespace, resourceClaimName) !== undefined,
        );
        if (isPlaceable && hasClaims) this.bind(namespace, name, nodeName);
      }
    };
    let isPlanned = false;
    this.store.onChange(({ kind }) => {
      if (isPlanned || (kind !== "/pods" && kind !== "resource.k8s.io/resourceclaims")) return;
      isPlanned = true;
      setImmediate(() => {
        isPlanned = false;
        bindAll();
      });
    });
  }

  /** Acts as a kubelet. */
  setPodStatus(namespace: string, name: string, status: Json): void {
    const pod = this.store.get("/pods", namespace, name);
    this.store.replace("/pods", pod, { ...pod, status: { ...(pod["status"] as Json), ...status } });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
  }

  #listenWith(): Server {
    return createServer((request, response) => void this.#answer(request, response));
  }

  async #listen(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    const address = this.#server.address();
    this.#port = typeof address === "object" && address !== null ? address.port : 0;
  }

  async #close(): Promise<void> {
    this.#watchers.clear();
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const send = (status: number, body: unknown): void => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    try {
      const url = new URL(request.url ?? "", "http://localhost");
      if (url.pathname === "/version/" || url.pathname === "/version")
        return send(200, { major: "1", minor: "36", gitVersion: "v1.36.2" });
      const target = parseTarget(url.pathname);
      const user = (request.headers.authorization ?? "").replace(/^Bearer /, "");
      if (target.kind === "authorization.k8s.io/selfsubjectaccessreviews")
        return send(201, this.#reviewAccess(user, (await readBody(request)) as AccessReview));
      const isWatch = url.searchParams.get("watch") === "true";
      const verb = verbOf(request.method ?? "", target, isWatch);
      this.#authorize(user, verb, target);
      if (isWatch) return this.#watch(target, url.searchParams, response);
      const body: unknown = await readBody(request);
      if (verb === "list") return send(200, this.#list(target, url.searchParams));
      if (verb === "get") return send(200, this.store.get(target.kind, target.namespace, target.name));
      const contentType = request.headers["content-type"] ?? "";
      if (verb === "create")
        return send(201, await this.#create(target, user, body as Json, url.searchParams.has("dryRun")));
      if (verb === "patch") return send(200, await this.#patch(target, user, contentType, body));
      const object = this.store.get(target.kind, target.namespace, target.name);
      this.store.delete(target.kind, object, body ?? {});
      return send(200, { kind: "Status", status: "Success" });
    } catch (error) {
      const status = error instanceof Refused ? error.status : error instanceof PatchRefused ? 422 : 500;
      send(status, { kind: "Status", status: "Failure", code: status, message: String(error) });
    }
  }

  #authorize(user: string, verb: string, { kind, namespace, name, subresource }: Target): void {
    if (!isAccount(user)) return;
    const full = subresource === "" ? kind : `${kind}/${subresource}`;
    if (this.rights.allows({ account: user, verb, kind: full, namespace, name })) return;
    this.denied.push(`${user}: ${full} ${verb}`);
    throw new Refused(403, `${user} may not ${verb} ${full}`);
  }

  #reviewAccess(account: string, { spec }: AccessReview): Json {
    const { group = "", resource, verb } = spec.resourceAttributes;
    const right = { account, verb, kind: `${group}/${resource}`, namespace: "", name: "" };
    return { spec, status: { allowed: !isAccount(account) || this.rights.has(right) } };
  }

  async #create({ kind, namespace }: Target, user: string, body: Json, isTrial: boolean): Promise<Json> {
    let object = structuredClone(body);
    if (kind === "/secrets") object = withData(object);
    if (kind === "/pods") object = { ...object, status: { phase: "Pending" } };
    if (this.exhausted.has(kind)) throw new Refused(403, `exceeded quota: count/${kind}`);
    const attempt = { kind, operation: "CREATE", namespace, user: userName(user), oldObject: null } as const;
    object = await admit(this.store, { ...attempt, object });
    this.#obeyPolicies("create", kind);
    if (isAccount(user)) validate(kind, object);
    return isTrial ? object : this.store.create(kind, namespace, object);
  }

  async #patch(
    { kind, namespace, name, subresource }: Target,
    user: string,
    contentType: string,
    patch: unknown,
  ): Promise<StoredObject> {
    for (let attempts = 1; ; attempts += 1) {
      const before = this.store.get(kind, namespace, name);
      const changed = applyPatch(contentType, before, patch);
      const patched = kind === "/secrets" ? withData(changed) : changed;
      const object =
        subresource === "status"
          ? { ...before, metadata: patched["metadata"], status: patched["status"] }
          : subresource === "ephemeralcontainers"
            ? { ...before, spec: patched["spec"] }
            : { ...patched, ...(before["status"] === undefined ? {} : { status: before["status"] }) };
      const admitted = await admit(this.store, {
        kind: subresource === "" ? kind : `${kind}/${subresource}`,
        operation: "UPDATE",
        namespace,
        user: userName(user),
        object,
        oldObject: before,
      });
      if (subresource === "") this.#obeyPolicies("patch", kind);
      // The object has changed while webhooks were called: a patch that names no version is applied again.
      if (isAccount(user)) validate(kind, admitted);
      const isLate = this.store.find(kind, namespace, name) !== before;
      if (isLate && attempts < 10) continue;
      return this.store.replace(kind, before, admitted);
    }
  }

  #obeyPolicies(verb: string, kind: string): void {
    const message = this.policies.get(`${verb} ${kind}`);
    if (message !== undefined) throw new Refused(422, `denied by a policy: ${message}`);
  }

  #list({ kind, namespace }: Target, query: URLSearchParams): Json {
    const all = this.store.list(kind).filter((object) => isSelected(object, namespace, query));
    const begin = Number(query.get("continue") ?? 0);
    const limit = Number(query.get("limit") ?? 0) || all.length;
    const rest = all.length > begin + limit ? { continue: String(begin + limit) } : {};
    return {
      kind: "List",
      apiVersion: "v1",
      metadata: { resourceVersion: String(this.store.version), ...rest },
      items: all.slice(begin, begin + limit),
    };
  }

  #watch(target: Target, query: URLSearchParams, response: ServerResponse): void {
    const changes = this.store.since(Number(query.get("resourceVersion") ?? 0));
    response.writeHead(200, { "content-type": "application/json" });
    response.flushHeaders();
    const watcher = { response, target, query };
    for (const change of changes) sendChange(watcher, change);
    if (this.hasBookmarks) {
      const object = { metadata: { resourceVersion: String(this.store.version) } };
      response.write(`${JSON.stringify({ type: "BOOKMARK", object })}\n`);
    }
    this.#watchers.add(watcher);
    response.on("close", () => this.#watchers.delete(watcher));
  }
}

interface AccessReview {
  readonly spec: {
    readonly resourceAttributes: {
      readonly group?: string;
      readonly resource: string;
      readonly verb: string;
    };
  };
}

function sendChange({ response, target, query }: Watcher, { kind, before, after, version }: Change): void {
  if (kind !== target.kind) return;
  const was = before !== undefined && isSelected(before, target.namespace, query);
  const is = after !== undefined && isSelected(after, target.namespace, query);
  if (!was && !is) return;
  const type = is ? (was ? "MODIFIED" : "ADDED") : "DELETED";
  const object = after ?? before;
  const metadata = { ...object?.metadata, resourceVersion: String(version) };
  response.write(`${JSON.stringify({ type, object: { ...object, metadata } })}\n`);
}

function isSelected(object: StoredObject, namespace: string, query: URLSearchParams): boolean {
  if (namespace !== "" && object.metadata.namespace !== namespace) return false;
  const parts = (text: string | null) => (text ?? "").split(",").filter((part) => part !== "");
  const hasLabels = parts(query.get("labelSelector")).every((part) => {
    const [key = "", value] = part.split("=");
    const label = object.metadata.labels?.[key];
    return label !== undefined && (value === undefined || label === value);
  });
  return (
    hasLabels &&
    parts(query.get("fieldSelector")).every((part) => {
      const [path = "", value] = part.split("=");
      const found = path
        .split(".")
        .reduce<unknown>((each, name) => (each as Json | undefined)?.[name], object);
      return found === value;
    })
  );
}

/** @throws Refused 404 for a path that the API does not have */
function parseTarget(path: string): Target {
  const [root, first = "", second = "", ...more] = path.split("/").slice(1);
  if (root !== "api" && root !== "apis") throw new Refused(404, `there is no ${path}`);
  const group = root === "api" ? "" : first;
  const rest = root === "api" ? [second, ...more].filter((part) => part !== "") : more;
  const isNamespaced = rest[0] === "namespaces" && rest.length > 2;
  const [resource = "", name = "", subresource = ""] = isNamespaced ? rest.slice(2) : rest;
  return {
    kind: `${group}/${resource}`,
    namespace: isNamespaced ? decodeURIComponent(rest[1] ?? "") : "",
    name: decodeURIComponent(name),
    subresource,
  };
}

function verbOf(method: string, { name }: Target, isWatch: boolean): string {
  if (method === "GET") return isWatch ? "watch" : name === "" ? "list" : "get";
  return { POST: "create", PATCH: "patch", PUT: "update", DELETE: "delete" }[method] ?? method;
}

/** Whether a user is a service account of the installation. */
function isAccount(user: string): boolean {
  return user.startsWith("millpond-");
}

function userName(user: string): string {
  return isAccount(user) ? `system:serviceaccount:${systemNamespace}:${user}` : user;
}

/** @throws Refused 422 for a member of Millpond's objects that one of the supported versions rejects */
function validate(kind: string, object: Json): void {
  const wrong = minors.flatMap((minor) => violations(kind, object, minor));
  if (wrong.length > 0) throw new Refused(422, [...new Set(wrong)].join("; "));
}

function withData({ stringData, ...object }: Json): Json {
  const data = Object.entries((stringData ?? {}) as Record<string, string>).map(([key, value]) => [
    key,
    Buffer.from(value).toString("base64"),
  ]);
  return { ...object, data: { ...(object["data"] as Json | undefined), ...Object.fromEntries(data) } };
}

async function readBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString("utf8");
  return text === "" ? undefined : (JSON.parse(text) as unknown);
}
