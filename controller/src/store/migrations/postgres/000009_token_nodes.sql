-- SPDX-License-Identifier: Apache-2.0
-- The only node that an agent's token reports; empty: none has joined with it yet.

ALTER TABLE tokens ADD COLUMN node TEXT NOT NULL DEFAULT '';
