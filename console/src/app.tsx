// SPDX-License-Identifier: Apache-2.0

import { useEffect } from "preact/hooks";
import type { JSX } from "preact";
import { Link } from "./parts/link.tsx";
import { type Me, login, logOut, mayAs, resume } from "./state/login.ts";
import { addressOf, usePlace } from "./state/place.ts";
import { useStore } from "./state/store.ts";
import { setTheme, theme, themeNames } from "./state/theme.ts";
import { silentSince } from "./state/watch.ts";
import { type Language, language, languages, setLanguage, texts } from "./texts/texts.ts";
import { AccessView, AuditView } from "./views/access.tsx";
import { ClaimView } from "./views/claim.tsx";
import { ClaimsView } from "./views/claims.tsx";
import { ConnectView } from "./views/connect.tsx";
import { EventsView } from "./views/events.tsx";
import { GpusView } from "./views/gpus.tsx";
import { LoginView } from "./views/login.tsx";
import { NodeView } from "./views/node.tsx";
import { NodesView } from "./views/nodes.tsx";
import { PlacementView } from "./views/placement.tsx";
import { PoolView } from "./views/pool.tsx";
import { QueuesView } from "./views/queues.tsx";
import { SessionsView } from "./views/sessions.tsx";
import { TenantsView } from "./views/tenants.tsx";
import { UsageView } from "./views/usage.tsx";

type ViewName =
  | "pool"
  | "nodes"
  | "gpus"
  | "placement"
  | "claims"
  | "sessions"
  | "queues"
  | "tenants"
  | "usage"
  | "events"
  | "access"
  | "audit"
  | "connect";

interface ViewSpec {
  readonly list: (me: Me) => JSX.Element;
  /** Views of a single object. */
  readonly one?: (name: string, me: Me) => JSX.Element;
  /** Other users do not see it in the menu, and the controller would refuse them. */
  readonly role?: "tenant-admin";
}

/** In the order of the menu. */
const views: Readonly<Record<ViewName, ViewSpec>> = {
  pool: { list: () => <PoolView /> },
  nodes: { list: () => <NodesView />, one: (name, me) => <NodeView name={name} me={me} key={name} /> },
  gpus: { list: () => <GpusView /> },
  placement: { list: () => <PlacementView /> },
  claims: { list: () => <ClaimsView />, one: (name) => <ClaimView name={name} key={name} /> },
  sessions: { list: () => <SessionsView /> },
  queues: { list: (me) => <QueuesView me={me} /> },
  tenants: { list: (me) => <TenantsView me={me} /> },
  usage: { list: () => <UsageView /> },
  events: { list: () => <EventsView /> },
  access: { list: (me) => <AccessView me={me} />, role: "tenant-admin" },
  audit: { list: () => <AuditView />, role: "tenant-admin" },
  connect: { list: () => <ConnectView /> },
};

const viewNames = Object.keys(views) as readonly ViewName[];

export function App() {
  const me = useStore(login);
  // Rerenders the whole page.
  useStore(language);
  useEffect(() => void resume(), []);
  if (me === "unknown") {
    return (
      <main class="login" id="content">
        <p class="quiet">{texts().loading}</p>
      </main>
    );
  }
  return me === "none" ? <LoginView /> : <Shell me={me} />;
}

function Shell({ me }: { readonly me: Me }) {
  const t = texts();
  const { path } = usePlace();
  const [first = "pool", name] = path;
  const current = viewNames.find((view) => view === first);
  return (
    <div class="shell">
      <a class="skip" href="#content">
        {t.skip}
      </a>
      <nav class="menu" aria-label={t.menu}>
        <Link to={addressOf()} class="brand">
          <img src="/console/icon.svg" alt="" width="24" height="24" />
          Millpond
        </Link>
        <ul>
          {viewsFor(me).map((view) => (
            <li key={view}>
              <Link
                to={view === "pool" ? addressOf() : addressOf(view)}
                {...(view === current ? { "aria-current": "page" as const } : {})}
              >
                {t.views[view]}
              </Link>
            </li>
          ))}
        </ul>
        <Settings me={me} />
      </nav>
      <main id="content" tabIndex={-1}>
        <Silence />
        {drawView(current, name, me) ?? <p class="quiet">{t.notFound}</p>}
      </main>
    </div>
  );
}

function viewsFor(me: Me): ViewName[] {
  return viewNames.filter((view) => {
    const { role } = views[view];
    return role === undefined || mayAs(me, role);
  });
}

function drawView(view: ViewName | undefined, name: string | undefined, me: Me): JSX.Element | undefined {
  const spec = view === undefined ? undefined : views[view];
  return name === undefined ? spec?.list(me) : spec?.one?.(name, me);
}

function Silence() {
  const t = texts();
  const since = useStore(silentSince);
  return since === 0 ? null : (
    <p class="trouble silence" role="alert">
      {t.silent} {new Date(since).toLocaleTimeString(document.documentElement.lang)}. {t.silentMore}
    </p>
  );
}

function Settings({ me }: { readonly me: Me }) {
  const t = texts();
  const chosen = useStore(theme);
  return (
    <div class="settings">
      <label>
        {t.theme}
        <select
          value={chosen}
          onChange={({ currentTarget }) => setTheme(themeNames.find((each) => each === currentTarget.value))}
        >
          {themeNames.map((each) => (
            <option value={each} key={each}>
              {t.themes[each]}
            </option>
          ))}
        </select>
      </label>
      <label>
        {t.languageLabel}
        <select
          value={language.get()}
          onChange={({ currentTarget }) => void setLanguage(currentTarget.value as Language)}
        >
          {Object.entries(languages).map(([code, own]) => (
            <option value={code} key={code} lang={code}>
              {own}
            </option>
          ))}
        </select>
      </label>
      <p>
        {t.loggedInAs} <strong>{me.name}</strong> ({me.tenant === "" ? me.role : `${me.role}, ${me.tenant}`})
      </p>
      <button type="button" onClick={() => void logOut()}>
        {t.logOut}
      </button>
    </div>
  );
}
