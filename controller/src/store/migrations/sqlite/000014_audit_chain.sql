-- SPDX-License-Identifier: Apache-2.0

-- The hash of each audit record covers the one before it (api/src/audit-chain.ts). Empty: written before there were hashes.
ALTER TABLE audit ADD COLUMN previous_hash TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN hash TEXT NOT NULL DEFAULT '';
