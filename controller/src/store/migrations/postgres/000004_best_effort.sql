-- SPDX-License-Identifier: Apache-2.0
-- vGPUs of best-effort claims hold memory and no compute: 0.

ALTER TABLE virtual_gpus DROP CONSTRAINT virtual_gpus_compute_percent_check;
ALTER TABLE virtual_gpus ADD CONSTRAINT virtual_gpus_compute_percent_check
  CHECK (compute_percent BETWEEN 0 AND 100);
