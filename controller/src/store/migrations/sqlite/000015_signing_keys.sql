-- SPDX-License-Identifier: Apache-2.0

-- Keys that sign tickets, and from which tokens of claims and programs are derived. The private halves are sealed with the
-- pool key, which is in a file of the controllers and in no database.
CREATE TABLE signing_keys (
  -- The beginning of the SHA-256 of the public key.
  id TEXT PRIMARY KEY,
  -- Ed25519: SPKI, DER, base64.
  public_key TEXT NOT NULL,
  -- PKCS #8, DER, sealed, base64; empty: nothing is derived from it any longer.
  sealed TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  -- Tickets signed with it are refused from then on; NULL: it is the current one.
  retires_at INTEGER,
  revoked INTEGER NOT NULL CHECK (revoked IN (0, 1)),
  -- At which it was created; 0: with the state.
  revision INTEGER NOT NULL
) STRICT;
