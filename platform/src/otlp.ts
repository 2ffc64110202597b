// SPDX-License-Identifier: Apache-2.0

// Spans for a collector of OpenTelemetry: OTLP over HTTP as JSON, in batches. Nothing waits for the collector.

export interface Span {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits. */
  readonly spanId: string;
  /** Absent: the span is the root of its trace. */
  readonly parentSpanId?: string;
  readonly name: string;
  /** Unix milliseconds, with fractions. */
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, string | number>>;
  /** Absent: it succeeded. */
  readonly error?: string | undefined;
}

export interface OtlpTarget {
  /** The URL to which traces are posted: `http://collector:4318/v1/traces`. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface OtlpOptions extends OtlpTarget {
  /** Attributes of the process: `service.name` and so on. */
  readonly resource: Readonly<Record<string, string>>;
  readonly log: { readonly warn: (fields: object, message: string) => void };
}

/**
 * The collector named by the standard variables of OpenTelemetry; undefined: none.
 *
 * @throws TypeError for a malformed address
 */
export function otlpTarget(env: NodeJS.ProcessEnv): OtlpTarget | undefined {
  const own = env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] ?? "";
  const base = env["OTEL_EXPORTER_OTLP_ENDPOINT"] ?? "";
  if ((own === "" && base === "") || env["OTEL_SDK_DISABLED"] === "true") {
    return undefined;
  }
  const { href } = new URL(own === "" ? `${base.replace(/\/+$/, "")}/v1/traces` : own);
  const pairs = (env["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] ?? env["OTEL_EXPORTER_OTLP_HEADERS"] ?? "")
    .split(",")
    .map((pair) => pair.split("="))
    .filter(([key = ""]) => key.trim() !== "")
    .map(([key = "", ...value]) => [key.trim().toLowerCase(), decodeURIComponent(value.join("=").trim())]);
  return { url: href, headers: Object.fromEntries(pairs) as Record<string, string> };
}

/** Delay between the first span of a batch and the call that sends it. */
const batchMs = 1000;
const mostInBatch = 512;
/** Spans beyond this number are dropped, and counted. */
const mostKept = 8192;
const patienceMs = 10_000;
/** The number of attempts to send one batch. */
const mostTries = 3;

export class OtlpExporter implements AsyncDisposable {
  readonly #options: OtlpOptions;
  readonly #kept: Span[] = [];
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  #work: Promise<void> = Promise.resolve();
  #isFailing = false;

  constructor(options: OtlpOptions) {
    this.#options = options;
  }

  add(span: Span): void {
    if (this.#kept.length >= mostKept) {
      this.#dropped += 1;
      return;
    }
    this.#kept.push(span);
    this.#timer ??= setTimeout(() => this.#begin(), batchMs).unref();
  }

  /** Sends pending spans. */
  async flush(): Promise<void> {
    this.#begin();
    await this.#work;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.flush();
  }

  #begin(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#work = this.#work.then(() => this.#send());
  }

  async #send(): Promise<void> {
    while (this.#kept.length > 0) {
      const batch = this.#kept.splice(0, mostInBatch);
      const failure = await this.#post(JSON.stringify(toRequest(batch, this.#options.resource)));
      if (failure !== undefined) {
        this.#dropped += batch.length;
        // The first failure of an outage is logged, and so is its end.
        if (!this.#isFailing) {
          this.#options.log.warn(
            { url: this.#options.url },
            `the collector does not accept traces: ${failure}`,
          );
        }
        this.#isFailing = true;
        return;
      }
      if (this.#isFailing || this.#dropped > 0) {
        this.#options.log.warn(
          { dropped: this.#dropped },
          "the collector accepts traces again, spans were dropped",
        );
      }
      this.#isFailing = false;
      this.#dropped = 0;
    }
  }

  /** @returns Why it failed; undefined: it succeeded. */
  async #post(body: string): Promise<string | undefined> {
    const { url, headers } = this.#options;
    let failure = "";
    for (let tries = 0; tries < mostTries; tries += 1) {
      try {
        const response = await fetch(url, {
          method: "POST",
          headers: { ...headers, "content-type": "application/json" },
          body,
          signal: AbortSignal.timeout(patienceMs),
          redirect: "error",
        });
        await response.body?.cancel();
        if (response.ok) {
          return undefined;
        }
        failure = `the collector answered ${response.status}`;
        // All other statuses are permanent, according to the specification.
        if (![429, 502, 503, 504].includes(response.status)) {
          return failure;
        }
      } catch (error) {
        failure = error instanceof Error ? error.message : String(error);
      }
    }
    return failure;
  }
}

function toRequest(spans: readonly Span[], resource: Readonly<Record<string, string>>): object {
  return {
    resourceSpans: [
      {
        resource: { attributes: toAttributes(resource) },
        scopeSpans: [{ scope: { name: "millpond" }, spans: spans.map(toOtlp) }],
      },
    ],
  };
}

const internalKind = 1;
const errorStatus = 2;

function toOtlp({ startMs, endMs, attributes, error, ...ids }: Span): object {
  return {
    ...ids,
    kind: internalKind,
    startTimeUnixNano: toNano(startMs),
    endTimeUnixNano: toNano(Math.max(startMs, endMs)),
    attributes: toAttributes(attributes),
    ...(error === undefined ? {} : { status: { code: errorStatus, message: error } }),
  };
}

/** In JSON, 64-bit numbers are strings. */
function toNano(ms: number): string {
  return String(BigInt(Math.round(ms * 1000)) * 1000n);
}

function toAttributes(values: Readonly<Record<string, string | number>>): object[] {
  return Object.entries(values).map(([key, value]) => ({
    key,
    value: typeof value === "number" ? { doubleValue: value } : { stringValue: value },
  }));
}
