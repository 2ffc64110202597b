-- SPDX-License-Identifier: Apache-2.0

-- The current key is in the column of the pool by then (controller/src/store/recovery/downgrade.ts).
DROP TABLE signing_keys;
