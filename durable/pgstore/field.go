package pgstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
)

// field is a column that is written for many rows at once: as an array of its values.
type field[T any] struct {
	name, kind string
	values     func([]T) any
}

func column[T, V any](name, kind string, of func(T) V) field[T] {
	return field[T]{name, kind, func(rows []T) any {
		values := make([]V, len(rows))
		for i := range rows {
			values[i] = of(rows[i])
		}
		return values
	}}
}

// moment is a column of times, NULL for none.
func moment[T any](name string, of func(T) time.Time) field[T] {
	return column(name, "timestamptz", func(row T) *time.Time {
		if t := of(row); !t.IsZero() {
			return &t
		}
		return nil
	})
}

// arrays are the values of the fields, as the statements below take them.
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

func insertInto[T any](table string, fields []field[T]) string {
	return "INSERT INTO " + table + " (" + names(fields) + ") SELECT * FROM " + unnested(fields)
}

// updateBy updates by the first n fields. What is in kept stays where it is NULL.
func updateBy[T any](table string, fields []field[T], n int, kept ...string) string {
	var set, where []string
	for i := range fields {
		name := fields[i].name
		switch {
		case i < n:
			where = append(where, "t."+name+" = u."+name)
		case strings.Contains(" "+strings.Join(kept, " ")+" ", " "+name+" "):
			set = append(set, name+" = coalesce(u."+name+", t."+name+")")
		default:
			set = append(set, name+" = u."+name)
		}
	}
	return "UPDATE " + table + " AS t SET " + strings.Join(set, ", ") + " FROM " + unnested(fields) +
		" WHERE " + strings.Join(where, " AND ")
}

// mutable are the columns of a record that change.
func mutable() []field[*row] {
	return []field[*row]{
		column("gateway", "text", func(r *row) string { return r.Gateway }),
		column("fingerprint", "text", func(r *row) string { return string(r.Fingerprint) }),
		column("state", "smallint", func(r *row) int16 { return int16(r.State) }),
		column("epoch", "bigint", func(r *row) int64 { return int64(r.Epoch) }),
		column("generation", "bigint", func(r *row) int64 { return r.Generation }),
		column("worker", "text", func(r *row) string { return r.Worker }),
		moment("next_at", func(r *row) time.Time { return r.NextAt }),
		column("later", "boolean", func(r *row) bool { return r.Later() }),
		moment("deadline", func(r *row) time.Time { return r.Deadline }),
		column("attempts", "bigint", func(r *row) int64 { return int64(r.Attempts) }),
		column("tries", "bigint", func(r *row) int64 { return int64(r.Tries) }),
		column("doubt", "boolean", func(r *row) bool { return r.Doubt }),
		column("ask", "boolean", func(r *row) bool { return r.Ask }),
		column("class", "smallint", func(r *row) int16 { return int16(r.Class) }),
		column("code", "text", func(r *row) string { return r.Code }),
		column("reference", "text", func(r *row) string { return r.Reference }),
		column("reason", "text", func(r *row) string { return r.Reason }),
		column("letter", "bigint", func(r *row) int64 { return r.Letter }),
		moment("first_at", func(r *row) time.Time { return r.First }),
		moment("last_at", func(r *row) time.Time { return r.Last }),
		moment("taken_at", func(r *row) time.Time { return r.Taken }),
		moment("since", func(r *row) time.Time { return r.Since }),
		column("batch", "text", func(r *row) string { return r.Batch }),
		column(`"row"`, "bigint", func(r *row) int64 { return int64(r.Row) }),
		moment("created", func(r *row) time.Time { return r.Created }),
		moment("updated", func(r *row) time.Time { return r.Updated }),
	}
}

// inserted are those of a new record, updated those of one that is there.
func inserted() []field[*row] {
	return append(mutable(),
		column("scope", "text", func(r *row) string { return r.ID.Scope }),
		column("operation", "text", func(r *row) string { return r.ID.Operation }),
		column("key", "text", func(r *row) string { return r.ID.Key }),
		column("payload", "bytea", func(r *row) []byte { return r.payload }),
	)
}

func updated() []field[*row] {
	return append(append([]field[*row]{column("id", "bigint", func(r *row) int64 { return r.id })}, mutable()...),
		column("payload", "bytea", func(r *row) []byte { return r.payload }),
		column("result", "bytea", func(r *row) []byte { return r.result }),
	)
}

// attempt is a row of the journal.
type attempt struct {
	*durable.Attempt

	intent int64
}

// ended are the columns of an attempt's end, begun all.
func ended() []field[attempt] {
	return []field[attempt]{
		column("intent", "bigint", func(a attempt) int64 { return a.intent }),
		column("n", "bigint", func(a attempt) int64 { return a.Generation }),
		moment("finished_at", func(a attempt) time.Time { return a.FinishedAt }),
		column("class", "smallint", func(a attempt) int16 { return int16(a.Class) }),
		column("code", "text", func(a attempt) string { return a.Code }),
		column("status", "bigint", func(a attempt) int64 { return int64(a.Status) }),
		column("reference", "text", func(a attempt) string { return a.Reference }),
		column("error", "text", func(a attempt) string { return a.Error }),
	}
}

func begun() []field[attempt] {
	return append(ended(),
		column("kind", "smallint", func(a attempt) int16 { return int16(a.Kind) }),
		column("epoch", "bigint", func(a attempt) int64 { return int64(a.Epoch) }),
		column("key", "text", func(a attempt) string { return a.Key }),
		column("worker", "text", func(a attempt) string { return a.Worker }),
		moment("sent_at", func(a attempt) time.Time { return a.SentAt }),
	)
}

// letter is a dead letter.
type letter struct {
	*durable.Letter

	intent int64
}

func letterKey() []field[letter] {
	return []field[letter]{
		column("intent", "bigint", func(l letter) int64 { return l.intent }),
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
		column("doubt", "boolean", func(l letter) bool { return l.Doubt }),
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
