-- SPDX-License-Identifier: Apache-2.0

-- Of a state that was restored from an older one: the last epoch that it had given out, and where epochs, revisions and
-- terms went on; 0: it never was.
ALTER TABLE pool ADD COLUMN restored_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pool ADD COLUMN resumed_at INTEGER NOT NULL DEFAULT 0;
