-- An update is HOT, and writes no index, if it changes no column that an index has, also in its predicate. So the end of an
-- execution no longer changes lease_expires, and no index has status. Programs for version 1 must have ended: they would not mark
-- unknown records as below.
UPDATE {{versions}} SET oldest = 2;

-- The lease of an unknown record ended at the epoch.
UPDATE {{records}} SET lease_expires = 'epoch' WHERE status = 6 AND lease_expires IS NOT NULL;
DROP INDEX {{schema}}{{open}};

-- What is swept, and what is in progress or unknown: the sweep passes it.
DROP INDEX {{schema}}{{expires}};
CREATE INDEX {{expires}} ON {{records}} (expires);

-- What may have been abandoned, what has ended since, and what waits for a reconciler. Transactional work has no lease.
CREATE INDEX {{leases}} ON {{records}} (lease_expires) WHERE lease_expires IS NOT NULL;
