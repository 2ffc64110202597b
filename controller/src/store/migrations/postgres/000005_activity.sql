-- SPDX-License-Identifier: Apache-2.0
-- Seconds since `granted_at` in which the sessions of an allocation made calls, as last written down.

ALTER TABLE allocations ADD COLUMN active_seconds BIGINT NOT NULL DEFAULT 0;
