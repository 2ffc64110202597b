-- SPDX-License-Identifier: Apache-2.0

-- Logins of browsers and command lines, which an administrator ends without ending the token.
CREATE TABLE logins (
  id TEXT PRIMARY KEY,
  who TEXT NOT NULL,
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  revoked INTEGER NOT NULL CHECK (revoked IN (0, 1))
);

-- Writes a change, all of it or nothing, in one round trip: its content is what change-rows.ts makes of it.
-- Answers 'done', or why it was not.
CREATE OR REPLACE FUNCTION commit_change(writer BIGINT, content TEXT, max_events BIGINT, max_audit BIGINT, max_usage BIGINT,
  max_changes BIGINT)
RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
  change JSONB := content::jsonb;
  written JSONB := change->'written';
  removed JSONB := change->'removed';
  next_revision BIGINT := (change->>'revision')::bigint;
  next_epoch BIGINT := (change->>'epoch')::bigint;
  before pool;
BEGIN
  SELECT * INTO before FROM pool FOR UPDATE;
  IF EXISTS (SELECT FROM changes c WHERE c.revision = next_revision AND c.content = commit_change.content) THEN
    -- It is being repeated, because the answer was lost. Another may have begun to lead since.
    RETURN 'done';
  END IF;
  IF before.term <> writer THEN
    RETURN 'term';
  END IF;
  IF before.revision >= next_revision OR before.epoch > next_epoch THEN
    RETURN 'revision';
  END IF;
  UPDATE pool SET revision = next_revision, epoch = next_epoch;

  DELETE FROM allocations WHERE epoch IN (SELECT value::bigint FROM jsonb_array_elements_text(removed->'allocations'));
  DELETE FROM nodes WHERE name IN (SELECT value FROM jsonb_array_elements_text(removed->'nodes'));
  DELETE FROM queues WHERE name IN (SELECT value FROM jsonb_array_elements_text(removed->'queues'));
  DELETE FROM tenants WHERE name IN (SELECT value FROM jsonb_array_elements_text(removed->'tenants'));
  DELETE FROM tokens WHERE name IN (SELECT value FROM jsonb_array_elements_text(removed->'tokens'));
  DELETE FROM logins WHERE id IN (SELECT value FROM jsonb_array_elements_text(removed->'logins'));

  INSERT INTO queues SELECT * FROM jsonb_populate_recordset(NULL::queues, written->'queues')
  ON CONFLICT (name) DO UPDATE SET spec = excluded.spec;
  INSERT INTO tenants SELECT * FROM jsonb_populate_recordset(NULL::tenants, written->'tenants')
  ON CONFLICT (name) DO UPDATE SET spec = excluded.spec;
  INSERT INTO nodes SELECT * FROM jsonb_populate_recordset(NULL::nodes, written->'nodes')
  ON CONFLICT (name) DO UPDATE SET agent_url = excluded.agent_url, agent_version = excluded.agent_version,
    hostname = excluded.hostname, boot_id = excluded.boot_id, cordoned = excluded.cordoned,
    cordon_reason = excluded.cordon_reason, labels = excluded.labels, agent_labels = excluded.agent_labels,
    revision = excluded.revision, joined_at = excluded.joined_at;
  INSERT INTO devices SELECT * FROM jsonb_populate_recordset(NULL::devices, written->'devices')
  ON CONFLICT (node, uuid) DO UPDATE SET device_index = excluded.device_index, name = excluded.name,
    kind = excluded.kind, memory_bytes = excluded.memory_bytes, pci_bus_id = excluded.pci_bus_id,
    compute_capability = excluded.compute_capability, multiprocessors = excluded.multiprocessors,
    driver_version = excluded.driver_version, cuda_version = excluded.cuda_version, healthy = excluded.healthy,
    health_reason = excluded.health_reason, cordoned = excluded.cordoned, cordon_reason = excluded.cordon_reason,
    numa_node = excluded.numa_node, overhead_bytes = excluded.overhead_bytes,
    pcie_switch = excluded.pcie_switch, nvlink_domain = excluded.nvlink_domain;
  INSERT INTO removed_nodes SELECT * FROM jsonb_populate_recordset(NULL::removed_nodes, written->'removed_nodes')
  ON CONFLICT (name) DO UPDATE SET removed_at = excluded.removed_at, revision = excluded.revision;
  INSERT INTO claims SELECT * FROM jsonb_populate_recordset(NULL::claims, written->'claims')
  ON CONFLICT (name) DO UPDATE SET arrival = excluded.arrival, spec = excluded.spec, state = excluded.state,
    reason = excluded.reason, version = excluded.version, created_at = excluded.created_at,
    bound_at = excluded.bound_at, ended_at = excluded.ended_at, waiting_since = excluded.waiting_since,
    preempt_at = excluded.preempt_at, requeues = excluded.requeues;
  PERFORM write_allocations(written);
  INSERT INTO tokens SELECT * FROM jsonb_populate_recordset(NULL::tokens, written->'tokens');
  INSERT INTO signing_keys SELECT * FROM jsonb_populate_recordset(NULL::signing_keys, written->'signing_keys')
  ON CONFLICT (id) DO UPDATE SET sealed = excluded.sealed, retires_at = excluded.retires_at,
    revoked = excluded.revoked;
  INSERT INTO logins SELECT * FROM jsonb_populate_recordset(NULL::logins, written->'logins')
  ON CONFLICT (id) DO UPDATE SET revoked = excluded.revoked;
  INSERT INTO events SELECT * FROM jsonb_populate_recordset(NULL::events, written->'events');
  INSERT INTO audit (at, who, role, tenant, what, subject, why, result)
  SELECT at, who, role, tenant, what, subject, why, result
  FROM jsonb_populate_recordset(NULL::audit, written->'audit');
  INSERT INTO usage (kind, claim, tenant, queue, claim_user, model, gpu_milli, began_at, ended_at, active_seconds)
  SELECT kind, claim, tenant, queue, claim_user, model, gpu_milli, began_at, ended_at, active_seconds
  FROM jsonb_populate_recordset(NULL::usage, written->'usage');

  DELETE FROM devices d USING jsonb_to_recordset(change->'deviceLists') AS list(node TEXT, uuids JSONB)
  WHERE d.node = list.node AND NOT list.uuids ? d.uuid;
  DELETE FROM claims WHERE name IN (SELECT value FROM jsonb_array_elements_text(removed->'claims'));

  IF written->'events' <> '[]' THEN
    DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - max_events;
  END IF;
  IF written->'audit' <> '[]' THEN
    DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - max_audit;
  END IF;
  IF written->'usage' <> '[]' THEN
    DELETE FROM usage WHERE id <= (SELECT max(id) FROM usage) - max_usage;
  END IF;
  INSERT INTO changes VALUES (next_revision, before.revision, content);
  DELETE FROM changes WHERE revision <= next_revision - max_changes;
  RETURN 'done';
END $$;
