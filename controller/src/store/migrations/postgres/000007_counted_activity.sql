-- SPDX-License-Identifier: Apache-2.0
-- What the agent of an allocation had counted when `active_seconds` was written down, milliseconds: whoever leads next goes
-- on from there.

ALTER TABLE allocations ADD COLUMN counted_ms BIGINT NOT NULL DEFAULT 0;

-- Writes the new and changed allocations of a change, and their vGPUs.
CREATE OR REPLACE FUNCTION write_allocations(written JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO allocations SELECT * FROM jsonb_populate_recordset(NULL::allocations, written->'allocations')
  ON CONFLICT (epoch) DO UPDATE SET granted_at = excluded.granted_at,
    released_revision = excluded.released_revision,
    size_revision = excluded.size_revision, resizing = excluded.resizing,
    active_seconds = excluded.active_seconds, counted_ms = excluded.counted_ms;
  -- Those whose sizes change are removed before any is written, so that each is written in view of the others.
  DELETE FROM virtual_gpus v USING jsonb_populate_recordset(NULL::virtual_gpus, written->'virtual_gpus') AS n
  WHERE v.epoch = n.epoch AND v.ordinal = n.ordinal
    AND (v.memory_bytes, v.compute_percent) <> (n.memory_bytes, n.compute_percent);
  INSERT INTO virtual_gpus SELECT * FROM jsonb_populate_recordset(NULL::virtual_gpus, written->'virtual_gpus')
  ON CONFLICT (epoch, ordinal) DO NOTHING;
END $$;
