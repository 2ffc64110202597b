-- SPDX-License-Identifier: Apache-2.0

ALTER TABLE devices DROP COLUMN cordon_reason;
