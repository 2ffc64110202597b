-- SPDX-License-Identifier: Apache-2.0
-- Nodes that were taken out of the pool join again with a token that was made since, and with no other.

CREATE TABLE removed_nodes (
  name TEXT PRIMARY KEY,
  removed_at INTEGER NOT NULL,
  -- At which it was removed.
  revision INTEGER NOT NULL
) STRICT;

-- At which it was made.
ALTER TABLE tokens ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
