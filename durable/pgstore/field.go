package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
)

// field is a column that is written for many rows at once: as an array of its values.
type field[T any] struct {
	name, kind string
	value      func(T) any
}

// fieldsOf returns the columns of a part of each row, with the same prefix before each name.
func fieldsOf[T, P any](columns []sqlquery.Column[P], prefix string, part func(T) *P) []field[T] {
	fields := make([]field[T], len(columns))
	for i, c := range columns {
		fields[i] = field[T]{prefix + c.Name, c.Kind, func(row T) any { return c.Value(part(row)) }}
	}
	return fields
}

// arrays are the values of the fields, as arguments of the statements below.
func arrays[T any](fields []field[T], rows []T) []any {
	args := make([]any, len(fields))
	for i, f := range fields {
		switch f.kind {
		case "text":
			args[i] = typed[string](f, rows)
		case "boolean":
			args[i] = typed[bool](f, rows)
		case "bytea":
			args[i] = typed[[]byte](f, rows)
		case "uuid":
			args[i] = typed[name](f, rows)
		case "timestamptz":
			args[i] = typed[pgtype.Timestamptz](f, rows)
		default:
			args[i] = typed[int64](f, rows)
		}
	}
	return args
}

func typed[V, T any](f field[T], rows []T) pgtype.FlatArray[V] {
	return array(rows, func(row T) V {
		value, _ := inPostgres(f.value(row)).(V)
		return value
	})
}

// array is an argument with a value for each row.
func array[T, V any](rows []T, of func(T) V) pgtype.FlatArray[V] {
	values := make(pgtype.FlatArray[V], len(rows))
	for i, row := range rows {
		values[i] = of(row)
	}
	return values
}

// values are those of the fields for one row.
func values[T any](fields []field[T], row T) []any {
	args := make([]any, len(fields))
	for i, f := range fields {
		args[i] = inPostgres(f.value(row))
	}
	return args
}

// inPostgres replaces a time by PostgreSQL's, and no time by NULL.
func inPostgres(value any) any {
	if at, ok := value.(time.Time); ok {
		return pgtype.Timestamptz{Time: at, Valid: !at.IsZero()}
	}
	return value
}

// joined are texts of the fields, with a separator between them.
func joined[T any](fields []field[T], separator string, text func(n int, f field[T]) string) string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = text(i+1, f)
	}
	return strings.Join(all, separator)
}

func names[T any](fields []field[T]) string {
	return joined(fields, ", ", func(_ int, f field[T]) string { return f.name })
}

// unnested is the fields as a table u.
func unnested[T any](fields []field[T]) string {
	return "unnest(" + joined(fields, ", ", func(n int, f field[T]) string { return fmt.Sprintf("$%d::%s[]", n, f.kind) }) +
		") AS u(" + names(fields) + ")"
}

// single is unnested for one row, with values instead of arrays.
func single[T any](fields []field[T]) string {
	return "(SELECT " + joined(fields, ", ", func(n int, f field[T]) string { return fmt.Sprintf("$%d::%s AS %s", n, f.kind, f.name) }) + ") AS u"
}

func insertInto[T any](table string, fields []field[T]) string {
	return "INSERT INTO " + table + " (" + names(fields) + ") SELECT * FROM " + unnested(fields)
}

// updateOf is an UPDATE with the first n fields as its condition. Payload and result are not changed if they are NULL.
// constant are further assignments, with a comma behind them.
func updateOf[T any](table string, fields []field[T], n int, constant string) string {
	set := joined(fields[n:], ", ", func(_ int, f field[T]) string {
		if f.kind == "bytea" {
			return f.name + " = coalesce(u." + f.name + ", t." + f.name + ")"
		}
		return f.name + " = u." + f.name
	})
	where := joined(fields[:n], " AND ", func(_ int, f field[T]) string { return "t." + f.name + " = u." + f.name })
	return "UPDATE " + table + " AS t SET " + constant + set + " FROM " + unnested(fields) + " WHERE " + where
}

// The fields of each statement.
//
//nolint:gochecknoglobals // constants
var (
	byID    = field[*row]{"id", "uuid", func(r *row) any { return r.id }}
	later   = field[*row]{"later", "boolean", func(r *row) any { return r.Scheduled() }}
	payload = field[*row]{"payload", "bytea", func(r *row) any { return r.payload }}
	result  = field[*row]{"result", "bytea", func(r *row) any { return r.result }}

	// updated are all columns that can change.
	updated = append([]field[*row]{byID, later, payload, result},
		fieldsOf(sqlquery.Without(sqlquery.IntentColumns, "scope operation key created"), "", recordOf)...)

	// taken are the columns that a claim changes.
	taken = slices.Concat([]field[*row]{byID},
		recordFields(sqlquery.Taken), attemptFields("key"))

	// settled are the columns that the outcome of an attempt changes. The first three identify the holder of the intent.
	settled = slices.Concat([]field[*row]{byID}, recordFields("generation"),
		[]field[*row]{{"worker", "text", func(r *row) any { return r.holder }}, later, result},
		recordFields("state epoch next_at attempts tries declines lost doubt ask class code reference reason letter first_at last_at updated"),
		attemptFields("status reference error"))

	// inserted are the columns of a new intent. The time of the insert is not known yet: until is
	// the time from which it is too late.
	inserted = slices.Concat([]field[*row]{
		byID, payload,
		{"not_before", "timestamptz", func(r *row) any { return durable.Ceil(r.NotBefore) }},
		{"until", "timestamptz", func(r *row) any { return r.until }},
	}, recordFields(`scope operation key gateway fingerprint deadline batch "row"`))

	// ended are the columns of an attempt's end, begun those of the whole attempt.
	ofAttempt = field[attempt]{"id", "uuid", func(a attempt) any { return a.intent }}
	ended     = append([]field[attempt]{ofAttempt},
		fieldsOf(sqlquery.Named(sqlquery.AttemptColumns, "n "+sqlquery.EndOfAttempt), "a_", partOfAttempt)...)
	begun = append([]field[attempt]{ofAttempt}, fieldsOf(sqlquery.AttemptColumns, "a_", partOfAttempt)...)

	ofLetter = field[letter]{"intent", "uuid", func(l letter) any { return l.intent }}
	opened   = append([]field[letter]{ofLetter},
		fieldsOf(sqlquery.Without(sqlquery.LetterColumns, `redriven_at "by" note`), "", partOfLetter)...)
	closed = append([]field[letter]{ofLetter},
		fieldsOf(sqlquery.Named(sqlquery.LetterColumns, `n redriven_at "by" note`), "", partOfLetter)...)
)

func recordOf(r *row) *durable.Record { return &r.Record }

func recordFields(names string) []field[*row] {
	return fieldsOf(sqlquery.Named(sqlquery.IntentColumns, names), "", recordOf)
}

// attemptFields are those of the attempt that begins or ends with the row.
func attemptFields(names string) []field[*row] {
	return fieldsOf(sqlquery.Named(sqlquery.AttemptColumns, names), "a_", func(r *row) *durable.Attempt { return r.attempt })
}

// attempt is a row of the journal.
type attempt struct {
	*durable.Attempt

	intent name
}

func partOfAttempt(a attempt) *durable.Attempt { return a.Attempt }

// letter is a dead letter.
type letter struct {
	*durable.DeadLetter

	intent name
}

func partOfLetter(l letter) *durable.DeadLetter { return l.DeadLetter }

// The statements that write fields.
//
//nolint:gochecknoglobals // constants
var (
	insert    = insertNow + unnested(inserted) + inserting
	insertOne = insertNow + single(inserted) + inserting
	update    = updateOf(intents, updated, 1, "")

	// What is the same of each attempt that begins or ends is not sent: Decide says so. Only an intent that is held has a
	// worker, so the first fields of settle show that it is still held.
	take = updateOf(intents, taken, 1, `later = false, updated = u.taken_at, a_n = u.generation,
		a_kind = CASE u.state WHEN 3 THEN 2 ELSE 1 END, a_epoch = u.epoch, a_worker = u.worker, a_sent = u.taken_at, a_finished = NULL,
		a_class = 0, a_code = '', a_status = 0, a_reference = '', a_error = '', `)
	settle = updateOf(intents, settled, 3, `worker = '', a_finished = u.updated, a_class = u.class, a_code = u.code, `) + ` RETURNING t.id`

	beginAttempts = updateOf(intents, begun, 1, "")
	endAttempts   = updateOf(intents, ended, 2, "")

	openLetters = insertInto(sqlquery.Letters, opened)
	openSettled = openLetters + ` WHERE EXISTS (SELECT FROM` + intents + `i WHERE i.id = u.intent AND i.state = 6 AND i.letter = u.n)
		ON CONFLICT DO NOTHING`
	closeLetters = updateOf(sqlquery.Letters, closed, 2, "")
)
