package storetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/storetest"
)

// ledgers is a Transactor: a Memory, and a table that is written to together with
// it. It is here so that the suite's transactions are tested where there is no
// database.
type ledgers struct {
	*idempotency.Memory

	mu   sync.Mutex
	rows map[string]int
}

// forever is a lease that outlives a transaction.
const forever = 24 * 365 * time.Hour

func (l *ledgers) Begin(ctx context.Context, lease idempotency.Lease, _ time.Duration) (idempotency.Transaction, error) {
	if err := l.Renew(ctx, lease, forever); err != nil {
		return nil, err
	}
	return &ledgerTx{ledgers: l, lease: lease}, nil
}

type ledgerTx struct {
	*ledgers

	lease   idempotency.Lease
	written []string
	over    bool
}

func (tx *ledgerTx) Value() any { return tx }

func (tx *ledgerTx) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	if tx.over {
		return errors.New("the transaction is over")
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.Complete(ctx, tx.lease, outcome); err != nil {
		return err
	}
	tx.over = true
	for _, id := range tx.written {
		tx.rows[id]++
	}
	return nil
}

func (tx *ledgerTx) Rollback(ctx context.Context) error {
	if tx.over {
		return nil
	}
	tx.over = true
	return tx.Renew(ctx, tx.lease, time.Hour)
}

func TestTransactor(t *testing.T) {
	l := &ledgers{Memory: new(idempotency.Memory), rows: make(map[string]int)}
	storetest.Suite{
		Open:  func(*testing.T) idempotency.Store { return l },
		Again: func(*testing.T) idempotency.Store { return l.Memory },
		Write: func(_ context.Context, tx any, id string) error {
			work := tx.(*ledgerTx)
			work.written = append(work.written, id)
			return nil
		},
		Count: func(_ context.Context, id string) (int, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.rows[id], nil
		},
		Fill: func(ctx context.Context, rows int) error {
			for range rows {
				claim := idempotency.Claim{
					ID: idempotency.ID{Key: idempotency.NewOwner()}, Owner: idempotency.NewOwner(), Lease: 1, TTL: 1,
				}
				if _, err := l.Reserve(ctx, claim); err != nil {
					return err
				}
			}
			return nil
		},
	}.Run(t)
}
