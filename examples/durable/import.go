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

// The columns of a sheet. The program reads invoice and amount, and writes the others.
const (
	columnInvoice = "invoice"
	columnAmount  = "amount"
)

var columnsWritten = []string{"status", "reference", "code", "text"}

// sheet is a CSV file with a header line.
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
		return nil, fmt.Errorf("%s: no header line", path)
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
			return nil, fmt.Errorf("%s: no column %q", path, name)
		}
	}
	for i, line := range lines {
		if len(line) > len(lines[0]) {
			return nil, fmt.Errorf("%s: row %d has more fields than the header", path, i+1)
		}
		lines[i] = append(line, make([]string, len(lines[0])-len(line))...)
	}
	return s, nil
}

// rows returns the rows with their numbers in a spreadsheet: the first row after the header is 2.
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

// cents parses an amount such as 12.50.
func cents(amount string) (int64, error) {
	whole, part, _ := strings.Cut(amount, ".")
	n, err := strconv.ParseUint((whole + part + "00")[:len(whole)+2], 10, 40)
	if err != nil || whole == "" || len(part) > 2 || n == 0 {
		return 0, fmt.Errorf("amount is %q, want a number such as 12.50", amount)
	}
	return int64(n), nil
}

// write writes the report into the file, in one step.
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

// runImport enqueues the rows of a sheet, sends them, and writes their states into the sheet. The
// database and the bank's ledger are files beside the sheet.
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
	b, err := openLedger(ctx, o.Database, dsn)
	if err != nil {
		return err
	}
	defer b.close()
	dir, err := os.MkdirTemp("", "pay")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	theBank, err := bank.Open(o.sheet + ".bank.jsonl")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sends atomic.Int64
	socket := filepath.Join(dir, "bank")
	served, err := process.Serve(ctx, socket, testAmounts(theBank.Handler(), &sends))
	if err != nil {
		return errors.Join(err, theBank.Close())
	}
	defer func() { cancel(); err = errors.Join(err, <-served, theBank.Close()) }()

	// This bank is fast, but the machine may be slow. A short timeout or lease would make results
	// unknown, and the engine would query or send again.
	engine := newEngine(b.store(), newGateway(asks, socket, timeLimit))
	engine.LeaseDuration = 0 // the default
	engine.Policy = durable.CardDeclines()
	engine.Trace = durable.LogTrace(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	im := durable.Import{Engine: engine, Scope: "acme", Operation: operation, Gateway: gateway, Batch: filepath.Base(o.sheet)}
	return o.shown(ctx, b.store(), out, func() error {
		before, err := im.Run(ctx, s.rows())
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d rows: %s\n", len(before.Rows), rowCounts(before))
		if err := workOff(ctx, engine); err != nil {
			return err
		}
		after, err := im.Run(ctx, s.rows())
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "sent to the bank: %d\nnow: %s\n", sends.Load(), rowCounts(after))
		return s.write(after)
	})
}

// rowCounts returns the number of rows with each status.
func rowCounts(report durable.Report) string {
	var words []string
	for status := durable.RowAccepted; status <= durable.RowInvalid; status++ {
		if n := report.Counts[status]; n > 0 {
			words = append(words, fmt.Sprintf("%d %v", n, status))
		}
	}
	return strings.Join(words, ", ")
}

// workOff works until the other intents are not due, at most for timeLimit.
func workOff(ctx context.Context, engine *durable.Engine) error {
	idle := 0 // consecutive rounds without work; in the first, a corrected row may not be due yet
	for start := time.Now(); time.Since(start) < timeLimit; _ = sleep.Context(ctx, pollInterval) {
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
		if idle > 1 && inProgress(stats) == stats.States[durable.StateWaiting] {
			break
		}
	}
	return ctx.Err()
}

// testAmounts makes the result depend on the amount, as payment providers do in test mode. Amounts with
// 13 cents are declined for an hour. Amounts with 7 cents are booked, and the response is lost.
func testAmounts(next http.Handler, sends *atomic.Int64) http.Handler {
	lose := (&chaos.Responses{Lose: 1}).Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		sends.Add(1)
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var o bank.Order
		_ = json.Unmarshal(body, &o) // the bank rejects an invalid order
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
