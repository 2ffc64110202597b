-- SPDX-License-Identifier: Apache-2.0
-- Memory that the driver takes for a session of a claim, beside the claim's own.

ALTER TABLE devices ADD COLUMN overhead_bytes BIGINT NOT NULL DEFAULT 0;
