// SPDX-License-Identifier: Apache-2.0

import { quota } from "../parts/format.ts";
import { Awaited, Plain, Used, View } from "../parts/view.tsx";
import { queues } from "../state/calls.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";

export function TenantsView() {
  const t = texts();
  const watched = useWatch("tenants", async (signal) => (await queues.listTenants({}, { signal })).tenants);
  return (
    <View title={t.views.tenants} command="millpond get tenants">
      <Awaited of={watched}>
        {(all) => (
          <Plain label={t.views.tenants} heads={[t.name, t.used, t.limit, t.bound, t.waitingCount]}>
            {all.map(({ name, used, limit, boundClaims, waitingClaims }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>
                  <Used used={used} limit={limit} />
                </td>
                <td>{quota(limit) || "–"}</td>
                <td>{boundClaims}</td>
                <td>{waitingClaims}</td>
              </tr>
            ))}
          </Plain>
        )}
      </Awaited>
    </View>
  );
}
