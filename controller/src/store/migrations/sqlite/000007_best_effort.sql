-- SPDX-License-Identifier: Apache-2.0
-- vGPUs of best-effort claims hold memory and no compute.

CREATE TABLE new_virtual_gpus (
  epoch INTEGER NOT NULL REFERENCES allocations (epoch) ON DELETE CASCADE,
  -- The client's device ordinal.
  ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
  node TEXT NOT NULL,
  uuid TEXT NOT NULL,
  memory_bytes INTEGER NOT NULL CHECK (memory_bytes > 0),
  -- 0: best effort.
  compute_percent INTEGER NOT NULL CHECK (compute_percent BETWEEN 0 AND 100),
  PRIMARY KEY (epoch, ordinal),
  UNIQUE (epoch, uuid),
  FOREIGN KEY (node, uuid) REFERENCES devices (node, uuid)
) STRICT;

INSERT INTO new_virtual_gpus (epoch, ordinal, node, uuid, memory_bytes, compute_percent)
SELECT epoch, ordinal, node, uuid, memory_bytes, compute_percent FROM virtual_gpus;

DROP TABLE virtual_gpus;
ALTER TABLE new_virtual_gpus RENAME TO virtual_gpus;

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
