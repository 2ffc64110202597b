-- SPDX-License-Identifier: Apache-2.0

DROP TRIGGER audit_is_chained ON audit;
DROP FUNCTION chain_audit();
DROP FUNCTION audit_text(TEXT);
ALTER TABLE audit DROP COLUMN previous_hash;
ALTER TABLE audit DROP COLUMN hash;
