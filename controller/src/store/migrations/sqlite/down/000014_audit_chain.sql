-- SPDX-License-Identifier: Apache-2.0

ALTER TABLE audit DROP COLUMN previous_hash;
ALTER TABLE audit DROP COLUMN hash;
