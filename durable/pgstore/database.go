package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// database implements sqlquery.Database.
type database struct {
	pool *pgxpool.Pool
	is   *texts
}

// Read implements sqlquery.Database.
func (d *database) Read(ctx context.Context, read func(context.Context, sqlquery.Session) error) error {
	return pgkit.Retry(ctx, func() error { return read(ctx, session{pgkit.PGX(d.pool).Send, d.is.of}) })
}

// List implements sqlquery.Database. The settings make PostgreSQL use the indexes. There are too many texts to keep them all.
func (d *database) List(ctx context.Context, read func(context.Context, sqlquery.Session) error) error {
	return d.transact(ctx, func(t *ownTransaction) error { return read(ctx, session{t.Commit, d.is.schema.Fill}) })
}

// Write implements sqlquery.Database.
func (d *database) Write(ctx context.Context, write func(context.Context, sqlquery.Transaction) error) error {
	return d.transact(ctx, func(t *ownTransaction) error {
		if err := write(ctx, &transaction{session{t.Send, d.is.of}, t, d.is}); err != nil {
			return err
		}
		return t.Commit(ctx)
	})
}

// Key implements sqlquery.Database.
func (*database) Key(id idempotency.ID) []any { return []any{nameOf(&id)} }

// send sends one statement by itself.
func (d *database) send(ctx context.Context, statement *pgkit.Statement) error {
	return pgkit.Retry(ctx, func() error { return pgkit.PGX(d.pool).Send(ctx, statement) })
}

// session implements sqlquery.Session.
type session struct {
	send func(ctx context.Context, statements ...*pgkit.Statement) error
	fill func(text string) string
}

// Query implements sqlquery.Session.
func (s session) Query(ctx context.Context, text string, args []any, scan func(sqlquery.Row) error) error {
	statement := &pgkit.Statement{Text: s.fill(text), Args: make([]any, len(args))}
	for i := range args {
		statement.Args[i] = inPostgres(args[i])
	}
	if scan != nil {
		statement.Scan = func(from pgkit.Row) error { return scan(from) }
	}
	return s.send(ctx, statement)
}

// transaction implements sqlquery.Transaction.
type transaction struct {
	session

	t  *ownTransaction
	is *texts
}

// Now implements sqlquery.Transaction.
func (t *transaction) Now(ctx context.Context) (now time.Time, err error) {
	err = t.t.Send(ctx, clockInto(&now))
	return now, err
}

// Apply implements sqlquery.Transaction.
func (t *transaction) Apply(ctx context.Context, events []durable.Event) ([]durable.Result, error) {
	results, last, err := newApplication(t.is, events).run(ctx, t.t)
	if err != nil {
		return nil, err
	}
	return results, t.t.Send(ctx, last...)
}

// Reap implements sqlquery.Transaction. It finds the dead workers first, and then their intents: others may have claimed some
// meanwhile.
func (t *transaction) Reap(ctx context.Context, limit int) (changes []durable.Change, err error) {
	var (
		dead []string
		rows []*row
		now  time.Time
		w    writing
	)
	name := func(from sqlquery.Row) error {
		dead = append(dead, "")
		return from.Scan(&dead[len(dead)-1])
	}
	if err := t.Query(ctx, sqlquery.RestartLeases, nil, nil); err != nil {
		return nil, err
	}
	for _, text := range [...]string{lockDead, orphanedWorkers} {
		if err := t.Query(ctx, text, nil, name); err != nil {
			return nil, err
		}
	}
	err = t.t.Send(ctx, &pgkit.Statement{Text: t.is.of(lockLost), Args: []any{dead, int64(limit)}, Scan: into(&rows)}, clockInto(&now))
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		e := durable.Event{Kind: durable.EventLeaseExpired, Intent: durable.Intent{ID: r.ID}, Worker: r.Worker}
		if result := w.judge(r, &e, now); result.Err == nil {
			changes = append(changes, result.Change)
		}
	}
	return changes, t.t.Send(ctx, append(w.statements(t.is, false), t.is.statement(deleteExpiredWorkers, dead))...)
}
