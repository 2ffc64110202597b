// SPDX-License-Identifier: Apache-2.0

// The API of a Kubernetes cluster, by its maintained client library.

import {
  AdmissionregistrationV1Api,
  AuthorizationV1Api,
  ApiException,
  CoordinationV1Api,
  CoreV1Api,
  createConfiguration,
  CustomObjectsApi,
  KubeConfig,
  PatchStrategy,
  RequestContext,
  ResourceV1Api,
  ServerConfiguration,
  setHeaderOptions,
  VersionApi,
  Watch,
} from "@kubernetes/client-node";
import { directCalls, metadataAlone } from "./direct-calls.ts";

export interface Cluster {
  readonly config: ClusterConfig;
  readonly core: CoreV1Api;
  readonly coordination: CoordinationV1Api;
  readonly admission: AdmissionregistrationV1Api;
  readonly authorization: AuthorizationV1Api;
  readonly resource: ResourceV1Api;
  /** Objects of any kind, by the names in their paths. */
  readonly objects: CustomObjectsApi;
  readonly version: VersionApi;
  readonly watch: Watch;
}

/** Age after which connections are replaced, so that renewed certificates and authorities in files take effect. */
const connectionsMs = 600_000;
/** Age after which headers are computed again, because tokens in files are renewed long before they expire. */
const headersMs = 5000;

/**
 * A configuration whose calls share their connections and, for some seconds, their headers. The library's own
 * configuration opens a connection for each call, with a TLS handshake, and leaves it to time out.
 */
export class ClusterConfig extends KubeConfig {
  #dispatcher: ReturnType<RequestContext["getDispatcher"]>;
  #headers: Readonly<Record<string, string>> = {};
  #connectedAtMs = Number.NEGATIVE_INFINITY;
  #authenticatedAtMs = Number.NEGATIVE_INFINITY;

  override makeApiClient<T>(type: new (configuration: ReturnType<typeof createConfiguration>) => T): T {
    const server = this.getCurrentCluster()?.server;
    if (server === undefined) throw new Error("the configuration names no cluster");
    return new type(
      createConfiguration({
        baseServer: new ServerConfiguration(server, {}),
        authMethods: { default: this },
        httpApi: directCalls,
      }),
    );
  }

  /** HTTP/2 took more CPU time per call than one connection for each concurrent call. */
  override createDispatcherOptions(
    ...of: Parameters<KubeConfig["createDispatcherOptions"]>
  ): ReturnType<KubeConfig["createDispatcherOptions"]> {
    const options = super.createDispatcherOptions(...of);
    if (options.type !== "agent") return options;
    const connect = { ...options.connect, allowH2: false };
    return { ...options, connect };
  }

  override async applySecurityAuthentication(context: RequestContext): Promise<void> {
    const nowMs = performance.now();
    if (nowMs - this.#authenticatedAtMs > headersMs) {
      const sample = new RequestContext(context.getUrl(), context.getHttpMethod());
      await super.applySecurityAuthentication(sample);
      this.#headers = sample.getHeaders();
      this.#authenticatedAtMs = nowMs;
      if (this.#dispatcher === undefined || nowMs - this.#connectedAtMs > connectionsMs) {
        // A replaced dispatcher closes when its calls have ended.
        void this.#dispatcher?.close();
        this.#dispatcher = sample.getDispatcher();
        this.#connectedAtMs = nowMs;
      }
    }
    for (const [name, value] of Object.entries(this.#headers)) context.setHeaderParam(name, value);
    if (this.#dispatcher !== undefined) context.setDispatcher(this.#dispatcher);
  }
}

/** @param config Default: the service account of the pod, else `KUBECONFIG` or `~/.kube/config`. */
export function connectCluster(config?: ClusterConfig): Cluster {
  const known = config ?? new ClusterConfig();
  if (config === undefined) known.loadFromDefault();
  return {
    config: known,
    core: known.makeApiClient(CoreV1Api),
    coordination: known.makeApiClient(CoordinationV1Api),
    admission: known.makeApiClient(AdmissionregistrationV1Api),
    authorization: known.makeApiClient(AuthorizationV1Api),
    resource: known.makeApiClient(ResourceV1Api),
    objects: known.makeApiClient(CustomObjectsApi),
    version: known.makeApiClient(VersionApi),
    watch: new Watch(known),
  };
}

/** For calls that patch: the body is an RFC 7396 merge patch. */
export const asMergePatch = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);
/** Lists such as conditions are merged by their keys. */
export const asStrategicPatch = setHeaderOptions("Content-Type", PatchStrategy.StrategicMergePatch);
/**
 * For calls whose caller needs no answer: the server returns only the metadata of the object, and not even that is
 * parsed. Parsing whole pods took a tenth of the operator's time.
 */
export function briefly(options?: Parameters<typeof setHeaderOptions>[2]): typeof asMergePatch {
  return setHeaderOptions("Accept", metadataAlone, options);
}
/** RFC 6902. */
export const asJsonPatch = setHeaderOptions("Content-Type", PatchStrategy.JsonPatch);

/** Status of an error of the API server; undefined for any other. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof ApiException ? error.code : undefined;
}

/** Renders any error of the API server as one line for people. */
export function describeFailure(error: unknown): string {
  if (error instanceof ApiException) {
    const body: unknown = error.body;
    const text = typeof body === "string" ? body : JSON.stringify(body);
    try {
      const { message } = JSON.parse(text) as { message?: unknown };
      if (typeof message === "string") return message;
    } catch {
      // Not a Status: shown as it is.
    }
    return `status ${error.code}: ${text.slice(0, 200)}`;
  }
  return error instanceof Error ? error.message : String(error);
}

/** Resolves to undefined when the API server answers with one of the statuses. */
export async function unlessStatus<T>(
  call: Promise<T>,
  ...statuses: readonly number[]
): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    const status = statusOf(error);
    if (status !== undefined && statuses.includes(status)) return undefined;
    throw error;
  }
}

/** Whether the connection's user has a right in all namespaces. */
export async function hasRight(
  { authorization }: Pick<Cluster, "authorization">,
  resourceAttributes: { readonly resource: string; readonly verb: string },
): Promise<boolean> {
  const body = { spec: { resourceAttributes } };
  const { status } = await authorization.createSelfSubjectAccessReview({ body });
  return status?.allowed === true;
}

export interface ClusterVersion {
  readonly major: number;
  readonly minor: number;
}

export async function readVersion(cluster: Cluster): Promise<ClusterVersion> {
  const { major, minor } = await cluster.version.getCode();
  // Managed clusters report `28+`.
  return { major: Number.parseInt(major, 10), minor: Number.parseInt(minor, 10) };
}
