-- SPDX-License-Identifier: Apache-2.0

-- Logins of browsers and command lines, which an administrator ends without ending the token.
CREATE TABLE logins (
  id TEXT PRIMARY KEY,
  who TEXT NOT NULL,
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked INTEGER NOT NULL CHECK (revoked IN (0, 1))
) STRICT;
