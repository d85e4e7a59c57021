package pgstore

import "time"

// SetClaimWait sets how long a claim waits for a connection.
func SetClaimWait(s *Store, wait time.Duration) { s.conns.claimWait = wait }
