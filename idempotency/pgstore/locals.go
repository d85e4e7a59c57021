package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// locals are what is set for the transaction of joined work alone, so that a dead
// owner does not hold an operation for long. Nothing is set that need not be, for all
// of it costs a few microseconds of each operation.
type locals struct {
	// limited and unlimited are lock, with and without what ends a transaction that
	// takes too long.
	limited, unlimited string

	settings []setting
}

// setting is a parameter of the server's.
type setting struct {
	name string

	// own is the session's, as the store has found it; 0: none.
	own int64

	// silence: it is about a host that falls silent, and not about the time that the
	// transaction takes.
	silence bool
}

// newLocals asks the server what there is to be set. transaction_timeout came with
// PostgreSQL 17: before, only an idle transaction can be ended by the server. Through
// a socket there is no host to lose.
func newLocals(ctx context.Context, q querier, socket bool, lock string) (*locals, error) {
	l := &locals{}
	err := q.rows(ctx, func(from row) error {
		var s setting
		err := from.Scan(&s.name, &s.own, &s.silence)
		if !s.silence || !socket {
			l.settings = append(l.settings, s)
		}
		return err
	}, `SELECT name, setting::bigint, name LIKE 'tcp%' FROM pg_catalog.pg_settings WHERE name IN (
		'idle_in_transaction_session_timeout', 'transaction_timeout',
		'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_user_timeout')
		ORDER BY 3 DESC, 1`)
	with := func(calls []string) string { return strings.Replace(lock, "{{locals}}", strings.Join(calls, ", "), 1) }
	calls := []string{"NULL"}
	l.unlimited = with(calls)
	for i, s := range l.settings {
		calls = append(calls, fmt.Sprintf("set_config('%s', $%d::text, true)", s.name, i+4))
		if s.silence {
			l.unlimited = with(calls)
		}
	}
	l.limited = with(calls)
	return l, err
}

// statement is the lock, for a transaction that may take limit, and whose host counts
// as lost when it has been silent for lease. It adds its arguments to args.
func (l *locals) statement(args []any, limit, lease time.Duration) statement {
	idle, interval, lost := silence(lease)
	for _, s := range l.settings {
		value := milliseconds(limit)
		switch s.name {
		case "tcp_keepalives_idle":
			value = idle
		case "tcp_keepalives_interval":
			value = interval
		case "tcp_user_timeout":
			value = lost
		}
		if s.silence && s.own > 0 {
			value = min(value, s.own) // what is tighter stays
		}
		if value > 0 {
			args = append(args, strconv.FormatInt(value, 10))
		}
	}
	if limit > 0 {
		return statement{l.limited, args}
	}
	return statement{l.unlimited, args}
}

// silence is how a silent host is told from a quiet one in d: the seconds before it is
// asked, those between questions, and in milliseconds, when it counts as lost. Shorter
// than two seconds is not possible.
func silence(d time.Duration) (idle, interval, lost int64) {
	seconds := max(milliseconds(d)/1000, 2)
	return max(seconds/2, 1), max(seconds/6, 1), min(seconds*1000, 1<<31-1)
}
