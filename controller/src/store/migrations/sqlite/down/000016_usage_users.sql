-- SPDX-License-Identifier: Apache-2.0

ALTER TABLE usage DROP COLUMN claim_user;
ALTER TABLE usage DROP COLUMN model;
