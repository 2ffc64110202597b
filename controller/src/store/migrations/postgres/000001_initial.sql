-- SPDX-License-Identifier: Apache-2.0

-- Desired and granted state of the pool: the tables of the SQLite store. Heartbeats, leases and statistics are not here:
-- they are in the memory of the controller that leads, and agents and clients say them again to the next.
-- Times are Unix seconds, sizes are bytes; NULL is "not yet"; spec and labels are JSON objects.

CREATE TABLE pool (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  -- UUID of this state.
  identity TEXT NOT NULL,
  -- Grows with every change; stamps claims and nodes.
  revision BIGINT NOT NULL,
  -- Grows with every allocation; fences out what belongs to an older one.
  epoch BIGINT NOT NULL,
  -- Ed25519, PKCS #8, DER: signs tickets.
  ticket_key BYTEA NOT NULL
);

CREATE TABLE nodes (
  name TEXT PRIMARY KEY,
  agent_url TEXT NOT NULL,
  agent_version TEXT NOT NULL,
  hostname TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  cordoned INTEGER NOT NULL CHECK (cordoned IN (0, 1)),
  cordon_reason TEXT NOT NULL,
  -- Those that operators gave it.
  labels TEXT NOT NULL CHECK (jsonb_typeof(labels::jsonb) = 'object'),
  -- Those that its agent brings.
  agent_labels TEXT NOT NULL CHECK (jsonb_typeof(agent_labels::jsonb) = 'object'),
  -- Revision of the last change of what should be on the node.
  revision BIGINT NOT NULL,
  joined_at BIGINT NOT NULL
);

CREATE TABLE devices (
  node TEXT NOT NULL REFERENCES nodes (name) ON DELETE CASCADE,
  uuid TEXT NOT NULL,
  device_index INTEGER NOT NULL CHECK (device_index >= 0),
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  memory_bytes BIGINT NOT NULL CHECK (memory_bytes > 0),
  pci_bus_id TEXT NOT NULL,
  compute_capability TEXT NOT NULL,
  multiprocessors INTEGER NOT NULL,
  driver_version TEXT NOT NULL,
  cuda_version INTEGER NOT NULL,
  healthy INTEGER NOT NULL CHECK (healthy IN (0, 1)),
  health_reason TEXT NOT NULL,
  cordoned INTEGER NOT NULL CHECK (cordoned IN (0, 1)),
  -- Where it sits on its node; empty: its agent does not know.
  numa_node TEXT NOT NULL,
  pcie_switch TEXT NOT NULL,
  nvlink_domain TEXT NOT NULL,
  PRIMARY KEY (node, uuid)
);

CREATE TABLE claims (
  name TEXT PRIMARY KEY,
  -- Revision at which it was made: the order of arrival.
  arrival BIGINT NOT NULL UNIQUE,
  -- What is asked; a member that is absent has its default.
  spec TEXT NOT NULL CHECK (jsonb_typeof(spec::jsonb) = 'object'),
  state TEXT NOT NULL CHECK (state IN ('pending', 'bound', 'released', 'failed')),
  reason TEXT NOT NULL,
  -- Revision of its last change.
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  bound_at BIGINT,
  ended_at BIGINT,
  -- When it began to wait, this time.
  waiting_since BIGINT,
  -- When what it holds will be taken.
  preempt_at BIGINT,
  -- How often it was put into the queue again.
  requeues INTEGER NOT NULL,
  CHECK ((ended_at IS NULL) = (state IN ('pending', 'bound'))),
  CHECK ((waiting_since IS NOT NULL) = (state = 'pending')),
  CHECK (preempt_at IS NULL OR state = 'bound')
);

CREATE TABLE allocations (
  epoch BIGINT PRIMARY KEY,
  claim TEXT NOT NULL REFERENCES claims (name),
  node TEXT NOT NULL REFERENCES nodes (name),
  granted_at BIGINT NOT NULL,
  -- Set when it has been taken back, but its sessions may still use the devices: the revision of that.
  released_revision BIGINT
);

CREATE INDEX allocations_by_claim ON allocations (claim);
CREATE UNIQUE INDEX one_grant_of_a_claim ON allocations (claim) WHERE released_revision IS NULL;

CREATE TABLE virtual_gpus (
  epoch BIGINT NOT NULL REFERENCES allocations (epoch) ON DELETE CASCADE,
  -- The client's device ordinal.
  ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
  node TEXT NOT NULL,
  uuid TEXT NOT NULL,
  memory_bytes BIGINT NOT NULL CHECK (memory_bytes > 0),
  compute_percent INTEGER NOT NULL CHECK (compute_percent BETWEEN 1 AND 100),
  PRIMARY KEY (epoch, ordinal),
  UNIQUE (epoch, uuid),
  FOREIGN KEY (node, uuid) REFERENCES devices (node, uuid)
);

CREATE INDEX virtual_gpus_by_device ON virtual_gpus (node, uuid);

-- The scheduler never over-allocates; if it ever did, nothing of it would become durable.
CREATE FUNCTION refuse_over_allocation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT
    FROM virtual_gpus v JOIN devices d ON d.node = v.node AND d.uuid = v.uuid
    WHERE (v.node, v.uuid) IN (SELECT node, uuid FROM added)
    GROUP BY d.node, d.uuid
    HAVING sum(v.memory_bytes) > d.memory_bytes OR sum(v.compute_percent) > 100
  ) THEN
    RAISE EXCEPTION 'the device is over-allocated' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER virtual_gpus_fit_their_device AFTER INSERT ON virtual_gpus
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_over_allocation();

CREATE TABLE events (
  id BIGINT PRIMARY KEY,
  at BIGINT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  message TEXT NOT NULL
);

CREATE INDEX events_by_subject ON events (subject, id);

-- Where claims wait, and who is charged.
CREATE TABLE queues (
  name TEXT PRIMARY KEY,
  spec TEXT NOT NULL CHECK (jsonb_typeof(spec::jsonb) = 'object')
);

CREATE TABLE tenants (
  name TEXT PRIMARY KEY,
  spec TEXT NOT NULL CHECK (jsonb_typeof(spec::jsonb) = 'object')
);

-- Times that are over: how long a claim waited, or held devices.
CREATE TABLE usage (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('waited', 'held')),
  claim TEXT NOT NULL,
  tenant TEXT NOT NULL,
  queue TEXT NOT NULL,
  -- Thousandths of a device, all vGPUs together.
  gpu_milli BIGINT NOT NULL,
  began_at BIGINT NOT NULL,
  ended_at BIGINT NOT NULL CHECK (ended_at >= began_at),
  -- Seconds of it in which sessions made calls.
  active_seconds BIGINT NOT NULL CHECK (active_seconds >= 0)
);

CREATE INDEX usage_by_end ON usage (ended_at);

-- Tokens that were made, by the hashes of their secrets, and what was changed by whom.
CREATE TABLE tokens (
  name TEXT PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL,
  tenant TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  created_by TEXT NOT NULL
);

CREATE TABLE audit (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at BIGINT NOT NULL,
  who TEXT NOT NULL,
  role TEXT NOT NULL,
  tenant TEXT NOT NULL,
  what TEXT NOT NULL,
  subject TEXT NOT NULL,
  why TEXT NOT NULL,
  result TEXT NOT NULL
);
