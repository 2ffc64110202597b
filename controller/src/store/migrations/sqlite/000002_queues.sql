-- SPDX-License-Identifier: Apache-2.0

-- What claims ask grows with every version: it is one JSON object, of which only the controller knows the members.
-- An allocation is known by its epoch, because a claim that was put into the queue again may hold a new one while its
-- old one is still being given back.

CREATE TABLE new_claims (
  name TEXT PRIMARY KEY,
  -- Revision at which it was made: the order of arrival.
  arrival INTEGER NOT NULL UNIQUE,
  -- What is asked; a member that is absent has its default.
  spec TEXT NOT NULL CHECK (json_valid(spec)),
  state TEXT NOT NULL CHECK (state IN ('pending', 'bound', 'released', 'failed')),
  reason TEXT NOT NULL,
  -- Revision of its last change.
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  bound_at INTEGER,
  ended_at INTEGER,
  -- When it began to wait, this time.
  waiting_since INTEGER,
  -- When what it holds will be taken.
  preempt_at INTEGER,
  -- How often it was put into the queue again.
  requeues INTEGER NOT NULL,
  CHECK ((ended_at IS NULL) = (state IN ('pending', 'bound'))),
  CHECK ((waiting_since IS NOT NULL) = (state = 'pending')),
  CHECK (preempt_at IS NULL OR state = 'bound')
) STRICT;

INSERT INTO new_claims
SELECT name, arrival,
  json_object('gpus', gpus, 'memoryBytes', memory_bytes, 'memoryPercent', memory_percent, 'computePercent',
    compute_percent, 'owner', owner, 'leaseSeconds', lease_seconds, 'isSessionBound',
    json(iif(session_bound = 1, 'true', 'false'))),
  state, reason, version, created_at, bound_at, ended_at, iif(state = 'pending', created_at, NULL), NULL, 0
FROM claims;

CREATE TABLE new_allocations (
  epoch INTEGER PRIMARY KEY,
  claim TEXT NOT NULL REFERENCES new_claims (name),
  node TEXT NOT NULL REFERENCES nodes (name),
  granted_at INTEGER NOT NULL,
  -- Set when it has been taken back, but its sessions may still use the devices: the revision of that.
  released_revision INTEGER
) STRICT;

INSERT INTO new_allocations
SELECT epoch, claim, node, coalesce((SELECT bound_at FROM claims WHERE name = claim), 0), released_revision
FROM allocations;

CREATE TABLE new_virtual_gpus (
  epoch INTEGER NOT NULL REFERENCES new_allocations (epoch) ON DELETE CASCADE,
  -- The client's device ordinal.
  ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
  node TEXT NOT NULL,
  uuid TEXT NOT NULL,
  memory_bytes INTEGER NOT NULL CHECK (memory_bytes > 0),
  compute_percent INTEGER NOT NULL CHECK (compute_percent BETWEEN 1 AND 100),
  PRIMARY KEY (epoch, ordinal),
  UNIQUE (epoch, uuid),
  FOREIGN KEY (node, uuid) REFERENCES devices (node, uuid)
) STRICT;

INSERT INTO new_virtual_gpus
SELECT epoch, ordinal, v.node, uuid, memory_bytes, compute_percent
FROM virtual_gpus v JOIN allocations a ON a.claim = v.claim;

DROP TABLE virtual_gpus;
DROP TABLE allocations;
DROP TABLE claims;
ALTER TABLE new_claims RENAME TO claims;
ALTER TABLE new_allocations RENAME TO allocations;
ALTER TABLE new_virtual_gpus RENAME TO virtual_gpus;

CREATE INDEX allocations_by_claim ON allocations (claim);
CREATE UNIQUE INDEX one_grant_of_a_claim ON allocations (claim) WHERE released_revision IS NULL;
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

-- What the operator says of a node and of a device; what the agent says is beside it. Labels are a JSON object.
ALTER TABLE nodes ADD COLUMN labels TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(labels));
-- Labels that its agent brings.
ALTER TABLE nodes ADD COLUMN agent_labels TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(agent_labels));
-- Why it is cordoned.
ALTER TABLE nodes ADD COLUMN cordon_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN cordoned INTEGER NOT NULL DEFAULT 0 CHECK (cordoned IN (0, 1));

-- Where claims wait, and who is charged; a JSON object each.
CREATE TABLE queues (
  name TEXT PRIMARY KEY,
  spec TEXT NOT NULL CHECK (json_valid(spec))
) STRICT;

CREATE TABLE tenants (
  name TEXT PRIMARY KEY,
  spec TEXT NOT NULL CHECK (json_valid(spec))
) STRICT;

-- Times that are over: how long a claim waited, or held devices.
CREATE TABLE usage (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('waited', 'held')),
  claim TEXT NOT NULL,
  tenant TEXT NOT NULL,
  queue TEXT NOT NULL,
  -- Thousandths of a device, all vGPUs together.
  gpu_milli INTEGER NOT NULL,
  began_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL CHECK (ended_at >= began_at),
  -- Seconds of it in which sessions made calls.
  active_seconds INTEGER NOT NULL CHECK (active_seconds >= 0)
) STRICT;

CREATE INDEX usage_by_end ON usage (ended_at);
