package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
)

// field is a column that is written for many rows at once: as an array of its values.
type field[T any] struct {
	name, kind string
	values     func([]T) any
	value      func(T) any
}

func column[T, V any](name, kind string, of func(T) V) field[T] {
	return field[T]{name, kind, func(rows []T) any {
		values := make(pgtype.FlatArray[V], len(rows))
		for i := range rows {
			values[i] = of(rows[i])
		}
		return values
	}, func(row T) any { return of(row) }}
}

// moment is a column of times, NULL for none.
func moment[T any](name string, of func(T) time.Time) field[T] {
	return column(name, "timestamptz", func(row T) pgtype.Timestamptz { return timestamp(of(row)) })
}

func timestamp(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// arrays are the values of the fields, as arguments of the statements below.
func arrays[T any](fields []field[T], rows []T) []any {
	args := make([]any, len(fields))
	for i := range fields {
		args[i] = fields[i].values(rows)
	}
	return args
}

func names[T any](fields []field[T]) string {
	all := make([]string, len(fields))
	for i := range fields {
		all[i] = fields[i].name
	}
	return strings.Join(all, ", ")
}

// unnested is the fields as a table u.
func unnested[T any](fields []field[T]) string {
	all := make([]string, len(fields))
	for i := range fields {
		all[i] = fmt.Sprintf("$%d::%s[]", i+1, fields[i].kind)
	}
	return "unnest(" + strings.Join(all, ", ") + ") AS u(" + names(fields) + ")"
}

// single is unnested for one row, with values instead of arrays.
func single[T any](fields []field[T]) string {
	all := make([]string, len(fields))
	for i := range fields {
		all[i] = fmt.Sprintf("$%d::%s AS %s", i+1, fields[i].kind, fields[i].name)
	}
	return "(SELECT " + strings.Join(all, ", ") + ") AS u"
}

// values are those of the fields for one row.
func values[T any](fields []field[T], row T) []any {
	args := make([]any, len(fields))
	for i := range fields {
		args[i] = fields[i].value(row)
	}
	return args
}

func insertInto[T any](table string, fields []field[T]) string {
	return "INSERT INTO " + table + " (" + names(fields) + ") SELECT * FROM " + unnested(fields)
}

// update is an UPDATE with the first n fields as its condition. A field in kept is not changed
// if its value is NULL. constant are further assignments.
type update[T any] struct {
	table    string
	fields   []field[T]
	n        int
	where    string
	kept     []string
	constant string
}

func (u update[T]) text() string {
	var set, where []string
	if u.constant != "" {
		set = append(set, u.constant)
	}
	for i := range u.fields {
		name := u.fields[i].name
		switch {
		case i < u.n:
			where = append(where, "t."+name+" = u."+name)
		case slices.Contains(u.kept, name):
			set = append(set, name+" = coalesce(u."+name+", t."+name+")")
		default:
			set = append(set, name+" = u."+name)
		}
	}
	return "UPDATE " + u.table + " AS t SET " + strings.Join(set, ", ") + " FROM " + unnested(u.fields) +
		" WHERE " + strings.Join(where, " AND ") + u.where
}

// changed are the columns that the outcome of an attempt changes.
func changed() []field[*row] {
	return []field[*row]{
		column("state", "smallint", func(r *row) int16 { return int16(r.State) }),
		column("epoch", "bigint", func(r *row) int64 { return int64(r.Epoch) }),
		moment("next_at", func(r *row) time.Time { return r.NextAt }),
		column("later", "boolean", func(r *row) bool { return r.Scheduled() }),
		column("attempts", "bigint", func(r *row) int64 { return int64(r.Attempts) }),
		column("tries", "bigint", func(r *row) int64 { return int64(r.Claims) }),
		column("declines", "bigint", func(r *row) int64 { return int64(r.Declines) }),
		column("doubt", "boolean", func(r *row) bool { return r.InDoubt }),
		column("ask", "boolean", func(r *row) bool { return r.QueryNext }),
		column("class", "smallint", func(r *row) int16 { return int16(r.Class) }),
		column("code", "text", func(r *row) string { return r.Code }),
		column("reason", "text", func(r *row) string { return r.Reason }),
		column("letter", "bigint", func(r *row) int64 { return r.DeadLetterID }),
		moment("first_at", func(r *row) time.Time { return r.FirstSentAt }),
		moment("last_at", func(r *row) time.Time { return r.LastSentAt }),
		moment("updated", func(r *row) time.Time { return r.UpdatedAt }),
	}
}

func byID() []field[*row] {
	return []field[*row]{column("id", "uuid", func(r *row) name { return r.id })}
}

// updated are all columns that can change.
func updated() []field[*row] {
	return slices.Concat(byID(), changed(), []field[*row]{
		column("gateway", "text", func(r *row) string { return r.Gateway }),
		column("fingerprint", "text", func(r *row) string { return string(r.Fingerprint) }),
		column("generation", "bigint", func(r *row) int64 { return r.Generation }),
		column("worker", "text", func(r *row) string { return r.Worker }),
		moment("deadline", func(r *row) time.Time { return r.Deadline }),
		column("reference", "text", func(r *row) string { return r.Reference }),
		moment("taken_at", func(r *row) time.Time { return r.ClaimedAt }),
		moment("since", func(r *row) time.Time { return r.RetryWindowStart }),
		column("batch", "text", func(r *row) string { return r.Batch }),
		column(`"row"`, "bigint", func(r *row) int64 { return int64(r.Row) }),
		column("payload", "bytea", func(r *row) []byte { return r.payload }),
		column("result", "bytea", func(r *row) []byte { return r.result }),
	})
}

// taken are the columns that a claim changes.
func taken() []field[*row] {
	return append(byID(),
		column("state", "smallint", func(r *row) int16 { return int16(r.State) }),
		column("epoch", "bigint", func(r *row) int64 { return int64(r.Epoch) }),
		column("generation", "bigint", func(r *row) int64 { return r.Generation }),
		column("worker", "text", func(r *row) string { return r.Worker }),
		column("attempts", "bigint", func(r *row) int64 { return int64(r.Attempts) }),
		column("tries", "bigint", func(r *row) int64 { return int64(r.Claims) }),
		moment("first_at", func(r *row) time.Time { return r.FirstSentAt }),
		moment("taken_at", func(r *row) time.Time { return r.ClaimedAt }),
		moment("since", func(r *row) time.Time { return r.RetryWindowStart }),
		column("a_key", "text", func(r *row) string { return r.attempt.Key }),
	)
}

// settledBy are the columns that identify the holder of an intent. settled are those that the
// outcome of an attempt changes, and doneWith those of a success.
func settledBy() []field[*row] {
	return append(byID(),
		column("generation", "bigint", func(r *row) int64 { return r.Generation }),
		column("worker", "text", func(r *row) string { return r.holder }),
		column("a_status", "bigint", func(r *row) int64 { return int64(r.attempt.Status) }),
		column("a_error", "text", func(r *row) string { return r.attempt.Error }),
	)
}

func settled() []field[*row] {
	return slices.Concat(settledBy(), changed(), []field[*row]{
		column("a_reference", "text", func(r *row) string { return r.attempt.Reference }),
	})
}

func done() []field[*row] {
	return append(settledBy(),
		column("code", "text", func(r *row) string { return r.Code }),
		column("reference", "text", func(r *row) string { return r.Reference }),
		column("result", "bytea", func(r *row) []byte { return r.result }),
		moment("last_at", func(r *row) time.Time { return r.LastSentAt }),
		moment("updated", func(r *row) time.Time { return r.UpdatedAt }),
	)
}

// inserted are the columns of a new intent. The time of the insert is not known yet: until is
// the time from which it is too late.
func inserted() []field[*row] {
	return append(byID(),
		column("scope", "text", func(r *row) string { return r.ID.Scope }),
		column("operation", "text", func(r *row) string { return r.ID.Operation }),
		column("key", "text", func(r *row) string { return r.ID.Key }),
		column("gateway", "text", func(r *row) string { return r.Gateway }),
		column("fingerprint", "text", func(r *row) string { return string(r.Fingerprint) }),
		moment("not_before", func(r *row) time.Time { return sqlquery.Ceil(r.NotBefore) }),
		moment("deadline", func(r *row) time.Time { return r.Deadline }),
		moment("until", func(r *row) time.Time { return r.until }),
		column("batch", "text", func(r *row) string { return r.Batch }),
		column(`"row"`, "bigint", func(r *row) int64 { return int64(r.Row) }),
		column("payload", "bytea", func(r *row) []byte { return r.payload }),
	)
}

// attempt is a row of the journal.
type attempt struct {
	*driver.Attempt

	intent name
}

// ended are the columns of an attempt's end, begun those of the whole attempt.
func ended() []field[attempt] {
	return []field[attempt]{
		column("id", "uuid", func(a attempt) name { return a.intent }),
		column("a_n", "bigint", func(a attempt) int64 { return a.Generation }),
		moment("a_finished", func(a attempt) time.Time { return a.FinishedAt }),
		column("a_class", "smallint", func(a attempt) int16 { return int16(a.Class) }),
		column("a_code", "text", func(a attempt) string { return a.Code }),
		column("a_status", "bigint", func(a attempt) int64 { return int64(a.Status) }),
		column("a_reference", "text", func(a attempt) string { return a.Reference }),
		column("a_error", "text", func(a attempt) string { return a.Error }),
	}
}

func begun() []field[attempt] {
	return append(ended(),
		column("a_kind", "smallint", func(a attempt) int16 { return int16(a.Kind) }),
		column("a_epoch", "bigint", func(a attempt) int64 { return int64(a.Epoch) }),
		column("a_key", "text", func(a attempt) string { return a.Key }),
		column("a_worker", "text", func(a attempt) string { return a.Worker }),
		moment("a_sent", func(a attempt) time.Time { return a.SentAt }),
	)
}

// letter is a dead letter.
type letter struct {
	*driver.DeadLetter

	intent name
}

func letterKey() []field[letter] {
	return []field[letter]{
		column("intent", "uuid", func(l letter) name { return l.intent }),
		column("n", "bigint", func(l letter) int64 { return l.Number }),
	}
}

func opened() []field[letter] {
	return append(letterKey(),
		column("gateway", "text", func(l letter) string { return l.Gateway }),
		column("batch", "text", func(l letter) string { return l.Batch }),
		column(`"row"`, "bigint", func(l letter) int64 { return int64(l.Row) }),
		column("reason", "text", func(l letter) string { return l.Reason }),
		column("class", "smallint", func(l letter) int16 { return int16(l.Class) }),
		column("code", "text", func(l letter) string { return l.Code }),
		column("doubt", "boolean", func(l letter) bool { return l.InDoubt }),
		column("attempts", "bigint", func(l letter) int64 { return int64(l.Attempts) }),
		moment("dead_at", func(l letter) time.Time { return l.DeadAt }),
	)
}

func closed() []field[letter] {
	return append(letterKey(),
		moment("redriven_at", func(l letter) time.Time { return l.RedrivenAt }),
		column(`"by"`, "text", func(l letter) string { return l.By }),
		column("note", "text", func(l letter) string { return l.Note }),
	)
}
