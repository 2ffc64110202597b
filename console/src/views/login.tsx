// SPDX-License-Identifier: Apache-2.0

import { useEffect, useState } from "preact/hooks";
import { logIn, loginTrouble, provider } from "../state/login.ts";
import { addressOf, go, usePlace } from "../state/place.ts";
import { useStore } from "../state/store.ts";
import { texts } from "../texts/texts.ts";

/** The view to which to return; the login page itself does not count. */
function returnAddress(path: readonly string[]): string {
  return path[0] === "login" ? addressOf() : location.pathname + location.search;
}

/** Data that was requested without a login is requested again after it. */
export function LoginView() {
  const t = texts();
  const trouble = useStore(loginTrouble);
  const providerName = useStore(provider);
  const [isBusy, setBusy] = useState(false);
  const [token, setToken] = useState("");
  const { path } = usePlace();
  const enter = async (by: { readonly token: string } | { readonly code: string }): Promise<void> => {
    setBusy(true);
    try {
      await logIn(by);
      if (path[0] === "login") {
        go(addressOf(), { isNewEntry: false });
      }
    } catch (error) {
      loginTrouble.set(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };
  useEffect(() => {
    document.title = `${t.logIn} · Millpond`;
    const code = location.hash.slice(1);
    if (path[0] === "login" && code !== "") {
      // Removes the code from the address and the history before anything else.
      history.replaceState(null, "", location.pathname);
      void enter({ code });
    }
  }, []);
  return (
    <main class="login" id="content">
      <img src="/console/icon.svg" alt="" width="48" height="48" />
      <h1>Millpond</h1>
      {providerName !== "" && (
        // An ordinary link: the controller redirects the browser to the provider.
        <p>
          <a class="button main" href={`/console/oidc/login?to=${encodeURIComponent(returnAddress(path))}`}>
            {t.logInWith(providerName)}
          </a>
        </p>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void enter({ token: token.trim() });
        }}
      >
        <label>
          {t.token}
          <input
            type="password"
            required
            autoComplete="off"
            spellcheck={false}
            value={token}
            onInput={({ currentTarget }) => setToken(currentTarget.value)}
          />
        </label>
        <button type="submit" class="main" disabled={isBusy}>
          {t.logIn}
        </button>
      </form>
      {trouble !== "" && (
        <p class="trouble" role="alert">
          {trouble}
        </p>
      )}
      <p class="quiet">{t.loginHint}</p>
      <p class="quiet">{t.loginWhere}</p>
    </main>
  );
}
