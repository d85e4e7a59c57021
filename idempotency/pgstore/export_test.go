package pgstore

import (
	"context"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// WithoutKeepalive returns a store without the detection of lost hosts.
func WithoutKeepalive(ctx context.Context, s *Store) (*Store, error) {
	conn, err := s.conns.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.release()
	without := *s
	without.settings, err = newTransactionSettings(ctx, pgkit.PGX(conn), true, s.is.lock)
	return &without, err
}

// SetClaimWait sets how long a claim waits for a connection.
func SetClaimWait(s *Store, wait time.Duration) { s.conns.claimWait = wait }
