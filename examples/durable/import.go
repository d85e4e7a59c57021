package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/examples/internal/bank"
	"github.com/resilienthttp/resilienthttp/examples/internal/chaos"
	"github.com/resilienthttp/resilienthttp/examples/internal/process"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// The columns of a sheet: invoice and amount are there, the others are written.
const (
	columnInvoice = "invoice"
	columnAmount  = "amount"
)

var columnsWritten = []string{"status", "reference", "code", "text"}

// sheet is a file of comma-separated values, with a line of names.
type sheet struct {
	path    string
	lines   [][]string
	columns map[string]int
}

func readSheet(path string) (*sheet, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reader := csv.NewReader(bytes.NewReader(file))
	reader.FieldsPerRecord = -1
	lines, err := reader.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s: there is no line of names", path)
	}
	s := &sheet{path: path, lines: lines, columns: make(map[string]int)}
	for _, name := range columnsWritten {
		if !slices.Contains(lines[0], name) {
			lines[0] = append(lines[0], name)
		}
	}
	for i, name := range lines[0] {
		s.columns[name] = i
	}
	for _, name := range []string{columnInvoice, columnAmount} {
		if _, ok := s.columns[name]; !ok {
			return nil, fmt.Errorf("%s: there is no column %q", path, name)
		}
	}
	for i, line := range lines {
		if len(line) > len(lines[0]) {
			return nil, fmt.Errorf("%s: row %d has more fields than names", path, i+1)
		}
		lines[i] = append(line, make([]string, len(lines[0])-len(line))...)
	}
	return s, nil
}

// rows are numbered as in a spreadsheet: the first behind the names is 2.
func (s *sheet) rows() iter.Seq2[int, durable.Row] {
	return func(yield func(int, durable.Row) bool) {
		for i, line := range s.lines[1:] {
			o := bank.Order{Reference: line[s.columns[columnInvoice]]}
			row := durable.Row{Key: o.Reference}
			if o.Amount, row.Err = cents(line[s.columns[columnAmount]]); row.Err == nil {
				row.Payload, row.Err = json.Marshal(o)
			}
			if !yield(i+2, row) {
				return
			}
		}
	}
}

// cents are those of an amount such as 12.50.
func cents(amount string) (int64, error) {
	whole, part, _ := strings.Cut(amount, ".")
	n, err := strconv.ParseUint((whole + part + "00")[:len(whole)+2], 10, 40)
	if err != nil || whole == "" || len(part) > 2 || n == 0 {
		return 0, fmt.Errorf("%q is no amount, such as 12.50", amount)
	}
	return int64(n), nil
}

// write puts the report into the file: all of it, or none.
func (s *sheet) write(report durable.Report) error {
	for _, r := range report.Rows {
		for i, value := range []string{r.Status.String(), r.Reference, r.Code, r.Text} {
			s.lines[r.Row-1][s.columns[columnsWritten[i]]] = value
		}
	}
	var text bytes.Buffer
	if err := csv.NewWriter(&text).WriteAll(s.lines); err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

// runImport enqueues the rows of a sheet, has them sent, and writes into the sheet where
// each stands. Its books and the bank's ledger stand beside the sheet.
func runImport(ctx context.Context, o *options, out io.Writer) (err error) {
	s, err := readSheet(o.sheet)
	if err != nil {
		return err
	}
	dsn, stop, err := o.database(ctx, o.sheet+".db")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	b, err := openBooks(ctx, o.Database, dsn)
	if err != nil {
		return err
	}
	defer b.close()
	dir, err := os.MkdirTemp("", "pay")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	there, err := bank.Open(o.sheet + ".bank.jsonl")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sends atomic.Int64
	socket := filepath.Join(dir, "bank")
	served, err := process.Serve(ctx, socket, testAmounts(there.Handler(), &sends))
	if err != nil {
		return errors.Join(err, there.Close())
	}
	defer func() { cancel(); err = errors.Join(err, <-served, there.Close()) }()

	// This bank is not slow. Where the machine is, an answer that came too late, or for a worker
	// that was thought to be dead, would be one that nobody knows: a refusal would be asked for
	// again.
	engine := newEngine(b.store(), newGateway(asks, socket, patience))
	engine.LeaseDuration = 0 // the default
	engine.Policy = durable.CardDeclines()
	engine.Trace = durable.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	im := durable.Import{Engine: engine, Scope: "acme", Operation: operation, Gateway: gateway, Batch: filepath.Base(o.sheet)}
	return o.shown(ctx, b.store(), out, func() error {
		before, err := im.Run(ctx, s.rows())
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d rows: %s\n", len(before.Rows), counts(before))
		if err := workOff(ctx, engine); err != nil {
			return err
		}
		after, err := im.Run(ctx, s.rows())
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "sent to the bank: %d\nnow: %s\n", sends.Load(), counts(after))
		return s.write(after)
	})
}

// counts are how many rows have each status, in the order of the statuses.
func counts(report durable.Report) string {
	var words []string
	for status := durable.RowAccepted; status <= durable.RowInvalid; status++ {
		if n := report.Counts[status]; n > 0 {
			words = append(words, fmt.Sprintf("%d %v", n, status))
		}
	}
	return strings.Join(words, ", ")
}

// workOff works until nothing is left but what waits for its time, or for as long as
// patience lasts.
func workOff(ctx context.Context, engine *durable.Engine) error {
	idle := 0 // rounds in a row: what was mended in this very moment may not be due for the first of them
	for began := time.Now(); time.Since(began) < patience; _ = sleep.Context(ctx, glance) {
		worked, err := engine.Work(ctx, 0)
		if err != nil {
			return err
		}
		if idle++; worked > 0 {
			idle = 0
		}
		stats, err := engine.Stats(ctx)
		if err != nil {
			return err
		}
		if idle > 1 && underWay(stats) == stats.States[durable.StateWaiting] {
			break
		}
	}
	return ctx.Err()
}

// testAmounts makes a bank behave by what is asked of it, as those of payment providers do
// in test mode: of 13 cents it says that they may be had in an hour, and of 7 cents it
// books the charge and loses the answer.
func testAmounts(next http.Handler, sends *atomic.Int64) http.Handler {
	lose := (&chaos.Answers{Lose: 1}).Around(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		sends.Add(1)
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var o bank.Order
		_ = json.Unmarshal(body, &o) // or the bank says so
		switch o.Amount % 100 {
		case 13:
			bank.Decline(w, bank.Again)
		case 7:
			lose.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
