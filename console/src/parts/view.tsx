// SPDX-License-Identifier: Apache-2.0

// Frame of every view: a title, the equivalent command, and the contents.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Amount, Quota } from "@millpond/api/browser";
import { bytes, gpus } from "./format.ts";
import { Meter } from "./meter.tsx";
import type { Watched } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

export function View({
  title,
  command,
  children,
  more,
}: {
  readonly title: string;
  readonly command: string;
  readonly children: ComponentChildren;
  /** Shown beside the title. */
  readonly more?: ComponentChildren;
}) {
  useEffect(() => {
    document.title = `${title} · Millpond`;
  }, [title]);
  return (
    <div class="view">
      <header class="view-head">
        <h1>{title}</h1>
        {more}
        <Command text={command} />
      </header>
      {children}
    </div>
  );
}

/** A command to be copied. */
export function Command({ text }: { readonly text: string }) {
  const t = texts();
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    const timer = isCopied ? setTimeout(() => setCopied(false), 2000) : undefined;
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = (): void => {
    void navigator.clipboard.writeText(text).then(() => setCopied(true));
  };
  return (
    <div class="command" title={t.command}>
      <code>{text}</code>
      {/* Browsers have a clipboard for pages over TLS and of this very machine. */}
      {isSecureContext && (
        <button type="button" onClick={copy} aria-live="polite">
          {isCopied ? t.copied : t.copy}
        </button>
      )}
    </div>
  );
}

/** Renders an answer; before the first one, that it has been requested, or why it does not arrive. */
export function Awaited<T>({
  of,
  children,
}: {
  readonly of: Watched<T>;
  readonly children: (data: T) => ComponentChildren;
}) {
  const { data, trouble } = of;
  if (data === undefined) {
    return trouble === undefined ? (
      <p class="quiet" role="status">
        {texts().loading}
      </p>
    ) : (
      <p class="trouble" role="alert">
        {trouble}
      </p>
    );
  }
  return (
    <div class={trouble === undefined ? "answer" : "answer old"}>
      {trouble !== undefined && (
        <p class="trouble" role="alert">
          {trouble}
        </p>
      )}
      {children(data)}
    </div>
  );
}

/** Names with values. */
export function Fields({ of }: { readonly of: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="fields">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export type Tone = "good" | "bad" | "warn" | "dim";

/** A state as a word; its colour adds no information. */
export function Badge({ tone, children }: { readonly tone: Tone; readonly children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

export function Labels({ of }: { readonly of: Readonly<Record<string, string>> }) {
  return (
    <>
      {Object.entries(of)
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
        .map(([key, value]) => (
          <span class="label" key={key}>
            {key}={value}
          </span>
        ))}
    </>
  );
}

/** A table with few rows. */
export function Plain({
  label,
  heads,
  children,
}: {
  readonly label: string;
  readonly heads: readonly string[];
  readonly children: ComponentChildren;
}) {
  return (
    // Scrollable content must be reachable by keyboard.
    <section class="panel scroll-x" tabIndex={0} aria-label={label}>
      <table class="plain">
        <thead>
          <tr>
            {heads.map((title) => (
              <th scope="col" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}

/** An amount, and its limit. */
export function Used({
  used,
  limit,
}: {
  readonly used: Amount | undefined;
  readonly limit: Quota | undefined;
}) {
  const has = used?.gpuMilli ?? 0n;
  const text = `${gpus(has)} GPU · ${bytes(used?.memoryBytes ?? 0n)}`;
  const most = limit?.gpuMilli ?? 0n;
  return most === 0n ? <>{text}</> : <Meter granted={1} measured={Number(has) / Number(most)} text={text} />;
}
