package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// transactionSettings are the server's parameters that are set for transactional work
// alone, so that a dead owner does not hold an operation for long. Each one costs a few
// microseconds per operation.
type transactionSettings struct {
	// limited and unlimited are the lock statement with and without the parameters that
	// end a transaction after its time limit.
	limited, unlimited string

	settings []setting
}

type setting struct {
	name string
	own  int64 // the session's own value; zero means none

	// keepalive: the parameter detects a lost host. Other parameters limit the time.
	keepalive bool
}

// newTransactionSettings asks the server for the parameters that it has:
// transaction_timeout came with PostgreSQL 17. Before, the server can end an idle
// transaction only.
func newTransactionSettings(ctx context.Context, through pgkit.Sender, overSocket bool, lock string) (*transactionSettings, error) {
	l := &transactionSettings{}
	err := through.Send(ctx, &pgkit.Statement{Text: `SELECT name, setting::bigint, name LIKE 'tcp%' FROM pg_catalog.pg_settings WHERE name IN (
		'idle_in_transaction_session_timeout', 'transaction_timeout',
		'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_user_timeout')
		ORDER BY 3 DESC, 1`, Scan: func(from pgkit.Row) error {
		var s setting
		err := from.Scan(&s.name, &s.own, &s.keepalive)
		if !s.keepalive || !overSocket {
			l.settings = append(l.settings, s)
		}
		return err
	}})
	with := func(calls []string) string {
		return strings.Replace(lock, "{{settings}}", ", num_nulls("+strings.Join(calls, ", ")+")", 1)
	}
	calls := []string{noteWait, limitWait}
	l.unlimited = with(calls)
	for i, s := range l.settings {
		calls = append(calls, fmt.Sprintf("set_config('%s', $%d::text, true)", s.name, i+2))
		if s.keepalive {
			l.unlimited = with(calls)
		}
	}
	l.limited = with(calls)
	return l, err
}

// statement returns the lock statement and its arguments for a transaction with a time
// limit. Its host counts as lost after a silence of lease.
func (l *transactionSettings) statement(id *idempotency.ID, limit, lease time.Duration) (string, []any) {
	args := append(make([]any, 0, 1+len(l.settings)), id.Scope+"\x01"+id.Operation+"\x01"+id.Key)
	// The server cannot detect a lost host in less than two seconds.
	seconds := max(milliseconds(lease)/1000, 2)
	for _, s := range l.settings {
		value := milliseconds(limit)
		switch s.name {
		case "tcp_keepalives_idle":
			value = max(seconds/2, 1)
		case "tcp_keepalives_interval":
			value = max(seconds/6, 1)
		case "tcp_user_timeout":
			value = min(seconds*1000, 1<<31-1)
		}
		if s.keepalive && s.own > 0 {
			value = min(value, s.own) // a stricter session keeps its value
		}
		if value > 0 {
			args = append(args, strconv.FormatInt(value, 10))
		}
	}
	if limit > 0 {
		return l.limited, args
	}
	return l.unlimited, args
}
