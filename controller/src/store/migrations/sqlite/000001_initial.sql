-- SPDX-License-Identifier: Apache-2.0

-- Desired and granted state of the pool. Heartbeats, leases and statistics are not here: they are in memory, and after
-- a restart agents and clients say them again.
-- Times are Unix seconds, sizes are bytes; NULL is "not yet".

CREATE TABLE pool (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  -- UUID of this state.
  identity TEXT NOT NULL,
  -- Grows with every change; stamps claims and nodes.
  revision INTEGER NOT NULL,
  -- Grows with every allocation; fences out what belongs to an older one.
  epoch INTEGER NOT NULL,
  -- Ed25519, PKCS #8, DER: signs tickets.
  ticket_key BLOB NOT NULL
) STRICT;

CREATE TABLE nodes (
  name TEXT PRIMARY KEY,
  agent_url TEXT NOT NULL,
  agent_version TEXT NOT NULL,
  hostname TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  cordoned INTEGER NOT NULL CHECK (cordoned IN (0, 1)),
  -- Revision of the last change of what should be on the node.
  revision INTEGER NOT NULL,
  joined_at INTEGER NOT NULL
) STRICT;

CREATE TABLE devices (
  node TEXT NOT NULL REFERENCES nodes (name) ON DELETE CASCADE,
  uuid TEXT NOT NULL,
  device_index INTEGER NOT NULL CHECK (device_index >= 0),
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  memory_bytes INTEGER NOT NULL CHECK (memory_bytes > 0),
  pci_bus_id TEXT NOT NULL,
  compute_capability TEXT NOT NULL,
  multiprocessors INTEGER NOT NULL,
  driver_version TEXT NOT NULL,
  cuda_version INTEGER NOT NULL,
  healthy INTEGER NOT NULL CHECK (healthy IN (0, 1)),
  health_reason TEXT NOT NULL,
  PRIMARY KEY (node, uuid)
) STRICT;

CREATE TABLE claims (
  name TEXT PRIMARY KEY,
  -- Revision at which it was made: the order of arrival.
  arrival INTEGER NOT NULL UNIQUE,
  gpus INTEGER NOT NULL CHECK (gpus BETWEEN 1 AND 64),
  memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),
  memory_percent INTEGER NOT NULL CHECK (memory_percent BETWEEN 0 AND 100),
  compute_percent INTEGER NOT NULL CHECK (compute_percent BETWEEN 0 AND 100),
  owner TEXT NOT NULL,
  lease_seconds INTEGER NOT NULL CHECK (lease_seconds > 0),
  session_bound INTEGER NOT NULL CHECK (session_bound IN (0, 1)),
  state TEXT NOT NULL CHECK (state IN ('pending', 'bound', 'released', 'failed')),
  reason TEXT NOT NULL,
  -- Revision of its last change.
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  bound_at INTEGER,
  ended_at INTEGER,
  CHECK ((ended_at IS NULL) = (state IN ('pending', 'bound')))
) STRICT;

CREATE INDEX claims_by_state ON claims (state, arrival);

CREATE TABLE allocations (
  claim TEXT PRIMARY KEY REFERENCES claims (name),
  node TEXT NOT NULL REFERENCES nodes (name),
  epoch INTEGER NOT NULL UNIQUE,
  -- Set when the claim has ended, but its sessions may still use the devices: the revision of that.
  released_revision INTEGER
) STRICT;

CREATE TABLE virtual_gpus (
  claim TEXT NOT NULL REFERENCES allocations (claim) ON DELETE CASCADE,
  -- The client's device ordinal.
  ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
  node TEXT NOT NULL,
  uuid TEXT NOT NULL,
  memory_bytes INTEGER NOT NULL CHECK (memory_bytes > 0),
  compute_percent INTEGER NOT NULL CHECK (compute_percent BETWEEN 1 AND 100),
  PRIMARY KEY (claim, ordinal),
  UNIQUE (claim, uuid),
  FOREIGN KEY (node, uuid) REFERENCES devices (node, uuid)
) STRICT;

CREATE INDEX virtual_gpus_by_device ON virtual_gpus (node, uuid);

-- The scheduler never over-allocates; if it ever did, nothing of it would become durable.
CREATE TRIGGER virtual_gpus_fit_their_device AFTER INSERT ON virtual_gpus
BEGIN
  SELECT raise(ABORT, 'the device is over-allocated')
  WHERE (
    SELECT sum(memory_bytes) > (SELECT memory_bytes FROM devices WHERE node = new.node AND uuid = new.uuid)
      OR sum(compute_percent) > 100
    FROM virtual_gpus
    WHERE node = new.node AND uuid = new.uuid
  );
END;

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_subject ON events (subject, id);
