package pgstore

import "context"

// WithoutSilence leaves a store's transactions without what finds lost hosts.
func WithoutSilence(s *Store) {
	s.locals, _ = newLocals(context.Background(), s.querier, true, s.is.lock)
}
