-- SPDX-License-Identifier: Apache-2.0
-- Why a device takes no new claims, for people.

ALTER TABLE devices ADD COLUMN cordon_reason TEXT NOT NULL DEFAULT '';
