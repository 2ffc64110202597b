-- SPDX-License-Identifier: Apache-2.0

-- The hash of each audit record covers the one before it (api/src/audit-chain.ts). Empty: written before there were hashes.
ALTER TABLE audit ADD COLUMN previous_hash TEXT DEFAULT '';
ALTER TABLE audit ADD COLUMN hash TEXT DEFAULT '';
-- From now on a row without them is a new one, which gets its own.
ALTER TABLE audit ALTER COLUMN previous_hash DROP DEFAULT;
ALTER TABLE audit ALTER COLUMN hash DROP DEFAULT;

CREATE FUNCTION audit_text(value TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT octet_length(convert_to(value, 'UTF8')) || ':' || value
$$;

-- Commits take turns, so the row before is the last one.
CREATE FUNCTION chain_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.hash IS NULL THEN
    NEW.previous_hash := coalesce((SELECT hash FROM audit ORDER BY id DESC LIMIT 1), '');
    NEW.hash := encode(sha256(convert_to(
      audit_text(NEW.previous_hash) || audit_text(NEW.at::text) || audit_text(NEW.who) || audit_text(NEW.role)
      || audit_text(NEW.tenant) || audit_text(NEW.what) || audit_text(NEW.subject) || audit_text(NEW.why)
      || audit_text(NEW.result), 'UTF8')), 'hex');
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER audit_is_chained BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION chain_audit();
