// SPDX-License-Identifier: Apache-2.0

import type { Tenant } from "@millpond/api/browser";
import { quota } from "../parts/format.ts";
import { Awaited, Plain, Used, View } from "../parts/view.tsx";
import { queues } from "../state/calls.ts";
import { type Me, mayAs } from "../state/login.ts";
import { useWatch } from "../state/watch.ts";
import { texts } from "../texts/texts.ts";
import { DeleteTenant, PutTenant } from "./tenant-actions.tsx";

export function TenantsView({ me }: { readonly me: Me }) {
  const t = texts();
  const watched = useWatch("tenants", async (signal) => (await queues.listTenants({}, { signal })).tenants);
  const isAdmin = mayAs(me, "admin");
  return (
    <View
      title={t.views.tenants}
      command="millpond get tenants"
      more={isAdmin && <PutTenant onDone={watched.again} />}
    >
      <Awaited of={watched}>
        {(all) => (
          <Plain
            label={t.views.tenants}
            heads={[
              t.name,
              t.used,
              t.limit,
              t.userLimit,
              t.bound,
              t.waitingCount,
              ...(isAdmin ? [t.actionsTitle] : []),
            ]}
          >
            {all.map((tenant) => (
              <tr key={tenant.name}>
                <th scope="row">{tenant.name}</th>
                <td>
                  <Used used={tenant.used} limit={tenant.limit} />
                </td>
                <td>{quota(tenant.limit) || "–"}</td>
                <td>
                  <UserLimitsOf tenant={tenant} />
                </td>
                <td>{tenant.boundClaims}</td>
                <td>{tenant.waitingClaims}</td>
                {isAdmin && (
                  <td>
                    <div class="buttons">
                      <PutTenant tenant={tenant} onDone={watched.again} />
                      <DeleteTenant name={tenant.name} onDone={watched.again} />
                    </div>
                  </td>
                )}
              </tr>
            ))}
          </Plain>
        )}
      </Awaited>
    </View>
  );
}

/** The limit of each user, and those of named ones. */
function UserLimitsOf({ tenant: { userLimits } }: { readonly tenant: Tenant }) {
  const t = texts();
  return (
    <>
      {quota(userLimits?.each) || "–"}
      {(userLimits?.users ?? []).map(({ user, limit }) => (
        <div key={user}>
          {user}: {quota(limit) || t.none}
        </div>
      ))}
    </>
  );
}
