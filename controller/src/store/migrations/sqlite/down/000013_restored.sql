-- SPDX-License-Identifier: Apache-2.0

ALTER TABLE pool DROP COLUMN restored_epoch;
ALTER TABLE pool DROP COLUMN resumed_at;
