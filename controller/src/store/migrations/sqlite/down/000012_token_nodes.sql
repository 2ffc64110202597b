-- SPDX-License-Identifier: Apache-2.0

ALTER TABLE tokens DROP COLUMN node;
