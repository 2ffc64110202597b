-- SPDX-License-Identifier: Apache-2.0

-- Tokens that were made, by the hashes of their secrets, and what was changed by whom.

CREATE TABLE tokens (
  name TEXT PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL,
  tenant TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  created_by TEXT NOT NULL
) STRICT;

CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  who TEXT NOT NULL,
  role TEXT NOT NULL,
  tenant TEXT NOT NULL,
  what TEXT NOT NULL,
  subject TEXT NOT NULL,
  why TEXT NOT NULL,
  result TEXT NOT NULL
) STRICT;
