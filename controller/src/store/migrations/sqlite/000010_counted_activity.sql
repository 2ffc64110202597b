-- SPDX-License-Identifier: Apache-2.0
-- What the agent of an allocation had counted when `active_seconds` was written down, milliseconds: whoever leads next goes
-- on from there.

ALTER TABLE allocations ADD COLUMN counted_ms INTEGER NOT NULL DEFAULT 0;
