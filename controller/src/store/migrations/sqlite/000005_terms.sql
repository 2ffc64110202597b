-- SPDX-License-Identifier: Apache-2.0

-- Who may write: grows with every controller that begins to lead, so that what an earlier one has under way is refused.
ALTER TABLE pool ADD COLUMN term INTEGER NOT NULL DEFAULT 0;
