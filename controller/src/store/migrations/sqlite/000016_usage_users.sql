-- SPDX-License-Identifier: Apache-2.0

-- Which user of the tenant usage is charged to, and on which model of device; empty: unknown, or not on any yet.
ALTER TABLE usage ADD COLUMN claim_user TEXT NOT NULL DEFAULT '';
ALTER TABLE usage ADD COLUMN model TEXT NOT NULL DEFAULT '';
