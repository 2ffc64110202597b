-- SPDX-License-Identifier: Apache-2.0

-- A claim may be dormant: it holds nothing and asks for nothing until a program of it calls its devices. The sizes of
-- the vGPUs of an allocation may change.

CREATE TABLE new_claims (
  name TEXT PRIMARY KEY,
  -- Revision at which it was made, or asked anew: the order of arrival.
  arrival INTEGER NOT NULL UNIQUE,
  -- What is asked; a member that is absent has its default.
  spec TEXT NOT NULL CHECK (json_valid(spec)),
  state TEXT NOT NULL CHECK (state IN ('dormant', 'pending', 'bound', 'released', 'failed')),
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
  CHECK ((ended_at IS NULL) = (state IN ('dormant', 'pending', 'bound'))),
  CHECK ((waiting_since IS NOT NULL) = (state = 'pending')),
  CHECK (preempt_at IS NULL OR state = 'bound')
) STRICT;

INSERT INTO new_claims (name, arrival, spec, state, reason, version, created_at, bound_at, ended_at, waiting_since,
  preempt_at, requeues)
SELECT name, arrival, spec, state, reason, version, created_at, bound_at, ended_at, waiting_since, preempt_at, requeues
FROM claims;

CREATE TABLE new_allocations (
  epoch INTEGER PRIMARY KEY,
  claim TEXT NOT NULL REFERENCES new_claims (name),
  node TEXT NOT NULL REFERENCES nodes (name),
  granted_at INTEGER NOT NULL,
  -- Set when it has been taken back, but its sessions may still use the devices: the revision of that.
  released_revision INTEGER,
  -- Revision of the last change of what its sessions may use; 0: it is as it was granted.
  size_revision INTEGER NOT NULL,
  -- The sizes that it is to have, while its node's agent is asked whether its sessions fit into them: a JSON object. Until
  -- then its vGPUs count as the greater of what they were and what they are to be.
  resizing TEXT CHECK (json_valid(resizing))
) STRICT;

INSERT INTO new_allocations (epoch, claim, node, granted_at, released_revision, size_revision)
SELECT epoch, claim, node, granted_at, released_revision, 0 FROM allocations;

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

INSERT INTO new_virtual_gpus (epoch, ordinal, node, uuid, memory_bytes, compute_percent)
SELECT epoch, ordinal, node, uuid, memory_bytes, compute_percent FROM virtual_gpus;

DROP TABLE virtual_gpus;
DROP TABLE allocations;
DROP TABLE claims;
ALTER TABLE new_claims RENAME TO claims;
ALTER TABLE new_allocations RENAME TO allocations;
ALTER TABLE new_virtual_gpus RENAME TO virtual_gpus;

CREATE INDEX allocations_by_claim ON allocations (claim);
CREATE UNIQUE INDEX one_grant_of_a_claim ON allocations (claim) WHERE released_revision IS NULL;
CREATE INDEX virtual_gpus_by_device ON virtual_gpus (node, uuid);

-- The scheduler never over-allocates; if it ever did, nothing of it would become durable. vGPUs whose sizes change are
-- removed before any is written, so every one that counts was inserted in view of the others.
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

CREATE TRIGGER virtual_gpus_are_not_updated BEFORE UPDATE ON virtual_gpus
BEGIN
  SELECT raise(ABORT, 'a vGPU is removed and inserted, not updated');
END;
