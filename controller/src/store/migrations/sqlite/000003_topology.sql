-- SPDX-License-Identifier: Apache-2.0

-- Where a device sits on its node; empty: its agent does not know.

ALTER TABLE devices ADD COLUMN numa_node TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN pcie_switch TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN nvlink_domain TEXT NOT NULL DEFAULT '';
