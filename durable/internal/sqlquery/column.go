// Package sqlquery has what the SQL stores of package durable share: the columns of their tables, the verbs that are the
// same in each database, and the queries of these. In the queries i is the table of intents, and l that of dead letters.
//
// The texts are those of PostgreSQL. A store replaces in them
//
//	$1::text     by its placeholder of an argument
//	{{schema}}   by the name of the tables' schema with a dot, or by nothing
//	{{now}}      by an expression for the time, which an index can be compared with
//	{{locked}}   by what locks the rows that are read, and leaves out those that are locked
//	{{id}}       by the condition that finds an intent by Database.Key
//	{{by due}}   by what makes the database use the index durable_intent_due, or by nothing
package sqlquery

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
)

// Column is a column of a table, with its type in PostgreSQL and its field.
type Column[T any] struct {
	Name, Kind string
	Field      func(*T) any // a pointer
}

// IntentColumns are those of the table of intents that a record has, without payload and result.
var IntentColumns = []Column[durable.Record]{ //nolint:gochecknoglobals // constant
	{"scope", "text", func(r *durable.Record) any { return &r.ID.Scope }},
	{"operation", "text", func(r *durable.Record) any { return &r.ID.Operation }},
	{"key", "text", func(r *durable.Record) any { return &r.ID.Key }},
	{"gateway", "text", func(r *durable.Record) any { return &r.Gateway }},
	{"fingerprint", "text", func(r *durable.Record) any { return &r.Fingerprint }},
	{"state", "smallint", func(r *durable.Record) any { return &r.State }},
	{"epoch", "bigint", func(r *durable.Record) any { return &r.Epoch }},
	{"generation", "bigint", func(r *durable.Record) any { return &r.Generation }},
	{"worker", "text", func(r *durable.Record) any { return &r.Worker }},
	{"next_at", "timestamptz", func(r *durable.Record) any { return &r.NextAt }},
	{"deadline", "timestamptz", func(r *durable.Record) any { return &r.Deadline }},
	{"attempts", "bigint", func(r *durable.Record) any { return &r.Attempts }},
	{"tries", "bigint", func(r *durable.Record) any { return &r.Claims }},
	{"declines", "bigint", func(r *durable.Record) any { return &r.Declines }},
	{"lost", "bigint", func(r *durable.Record) any { return &r.LostLeases }},
	{"doubt", "boolean", func(r *durable.Record) any { return &r.InDoubt }},
	{"ask", "boolean", func(r *durable.Record) any { return &r.QueryNext }},
	{"class", "smallint", func(r *durable.Record) any { return &r.Class }},
	{"code", "text", func(r *durable.Record) any { return &r.Code }},
	{"reference", "text", func(r *durable.Record) any { return &r.Reference }},
	{"reason", "text", func(r *durable.Record) any { return &r.Reason }},
	{"letter", "bigint", func(r *durable.Record) any { return &r.DeadLetterID }},
	{"first_at", "timestamptz", func(r *durable.Record) any { return &r.FirstSentAt }},
	{"last_at", "timestamptz", func(r *durable.Record) any { return &r.LastSentAt }},
	{"taken_at", "timestamptz", func(r *durable.Record) any { return &r.ClaimedAt }},
	{"since", "timestamptz", func(r *durable.Record) any { return &r.RetryWindowStart }},
	{"batch", "text", func(r *durable.Record) any { return &r.Batch }},
	{`"row"`, "bigint", func(r *durable.Record) any { return &r.Row }},
	{"created", "timestamptz", func(r *durable.Record) any { return &r.CreatedAt }},
	{"updated", "timestamptz", func(r *durable.Record) any { return &r.UpdatedAt }},
}

// Taken are the columns of an intent that a claim changes, besides later and updated.
const Taken = "state epoch generation worker next_at attempts tries first_at last_at taken_at since"

// AttemptColumns are those of the journal. The table of intents has them too, with a_ before each, for the last attempt.
var AttemptColumns = []Column[durable.Attempt]{ //nolint:gochecknoglobals // constant
	{"n", "bigint", func(a *durable.Attempt) any { return &a.Generation }},
	{"kind", "smallint", func(a *durable.Attempt) any { return &a.Kind }},
	{"epoch", "bigint", func(a *durable.Attempt) any { return &a.Epoch }},
	{"key", "text", func(a *durable.Attempt) any { return &a.Key }},
	{"worker", "text", func(a *durable.Attempt) any { return &a.Worker }},
	{"sent", "timestamptz", func(a *durable.Attempt) any { return &a.SentAt }},
	{"finished", "timestamptz", func(a *durable.Attempt) any { return &a.FinishedAt }},
	{"class", "smallint", func(a *durable.Attempt) any { return &a.Class }},
	{"code", "text", func(a *durable.Attempt) any { return &a.Code }},
	{"status", "bigint", func(a *durable.Attempt) any { return &a.Status }},
	{"reference", "text", func(a *durable.Attempt) any { return &a.Reference }},
	{"error", "text", func(a *durable.Attempt) any { return &a.Error }},
}

// EndOfAttempt are the columns of an attempt's end.
const EndOfAttempt = "finished class code status reference error"

// LetterColumns are those of the table of dead letters.
var LetterColumns = []Column[durable.DeadLetter]{ //nolint:gochecknoglobals // constant
	{"n", "bigint", func(l *durable.DeadLetter) any { return &l.Number }},
	{"gateway", "text", func(l *durable.DeadLetter) any { return &l.Gateway }},
	{"batch", "text", func(l *durable.DeadLetter) any { return &l.Batch }},
	{`"row"`, "bigint", func(l *durable.DeadLetter) any { return &l.Row }},
	{"reason", "text", func(l *durable.DeadLetter) any { return &l.Reason }},
	{"class", "smallint", func(l *durable.DeadLetter) any { return &l.Class }},
	{"code", "text", func(l *durable.DeadLetter) any { return &l.Code }},
	{"doubt", "boolean", func(l *durable.DeadLetter) any { return &l.InDoubt }},
	{"attempts", "bigint", func(l *durable.DeadLetter) any { return &l.Attempts }},
	{"dead_at", "timestamptz", func(l *durable.DeadLetter) any { return &l.DeadAt }},
	{"redriven_at", "timestamptz", func(l *durable.DeadLetter) any { return &l.RedrivenAt }},
	{`"by"`, "text", func(l *durable.DeadLetter) any { return &l.By }},
	{"note", "text", func(l *durable.DeadLetter) any { return &l.Note }},
}

// Named returns the columns of these names, in their order.
func Named[T any](columns []Column[T], names string) []Column[T] {
	var some []Column[T]
	for name := range strings.FieldsSeq(names) {
		i := slices.IndexFunc(columns, func(c Column[T]) bool { return c.Name == name })
		some = append(some, columns[i])
	}
	return some
}

// Without returns the columns but those of these names.
func Without[T any](columns []Column[T], names string) []Column[T] {
	return slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool { return slices.Contains(strings.Fields(names), c.Name) })
}

// Names returns the names of the columns, with the same prefix before each.
func Names[T any](prefix string, columns []Column[T]) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = prefix + c.Name
	}
	return strings.Join(names, ", ")
}

// Values returns the values of the columns, as Value does.
func Values[T any](columns []Column[T], of *T) []any {
	values := make([]any, len(columns))
	for i, c := range columns {
		values[i] = c.Value(of)
	}
	return values
}

// Value returns the value of the field: an int64, a bool, a string or a time.Time.
func (c Column[T]) Value(of *T) any {
	field := c.Field(of)
	if at, ok := field.(*time.Time); ok {
		return *at
	}
	switch v := reflect.ValueOf(field).Elem(); v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.String:
		return v.String()
	case reflect.Uint8:
		return int64(v.Uint())
	default:
		return v.Int()
	}
}

// Blob returns the bytes, which are not NULL if there are none.
func Blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Row is a row of a result.
type Row interface {
	// Scan is that of database/sql.
	Scan(to ...any) error
}

// Scan reads the columns of a row, and then others.
func Scan[T any](from Row, columns []Column[T], to *T, others ...any) error {
	all := make([]any, 0, len(columns)+len(others))
	for _, c := range columns {
		all = append(all, c.Field(to))
	}
	all = append(all, others...)
	for i := range all {
		if at, ok := all[i].(*time.Time); ok {
			all[i] = moment{at}
		}
	}
	return from.Scan(all...)
}

// moment reads a time: PostgreSQL's, or SQLite's microseconds. NULL is no time.
type moment struct{ to *time.Time }

// Scan implements sql.Scanner.
func (m moment) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*m.to = time.Time{}
	case time.Time:
		*m.to = v.UTC()
	case int64:
		*m.to = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("sqlquery: a time is a %T", value)
	}
	return nil
}
