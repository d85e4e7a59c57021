package durable_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
)

// sheet is a spreadsheet: payloads by key, in the order of their rows from 2.
type sheet [][2]string

func (s sheet) rows() iter.Seq2[int, durable.Row] {
	return func(yield func(int, durable.Row) bool) {
		for i, row := range s {
			r := durable.Row{Key: row[0], Payload: []byte(row[1])}
			if row[1] == "unreadable" {
				r = durable.Row{Key: row[0], Err: errors.New("the amount is no number")}
			}
			if !yield(i+2, r) {
				return
			}
		}
	}
}

// statuses are those of a report, by row.
func statuses(report durable.Report) map[int]string {
	got := map[int]string{}
	for i := range report.Rows {
		row := &report.Rows[i]
		got[row.Row] = row.Status.String()
		for _, more := range []string{row.Reference, row.Code, row.Text} {
			if more != "" {
				got[row.Row] += " " + more
			}
		}
	}
	return got
}

// Three of ten rows are declined. After they were corrected, a second Run sends three.
func TestImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := map[string]int{}
		hold := make(chan struct{})
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			mu.Lock()
			sent[s.ID.Key]++
			mu.Unlock()
			assert.Equal(t, "invoices", s.Batch)
			switch string(s.Payload) {
			case "bad":
				return durable.Outcome{Class: durable.ClassDeclined, Code: "currency", Err: errors.New("no such currency")}
			case "later":
				return durable.Outcome{Class: durable.ClassFailed}
			case "lost":
				return durable.Outcome{Err: errors.New("timeout")}
			case "slow":
				<-hold
			}
			return durable.Outcome{Class: durable.ClassSucceeded, Reference: "ch_" + s.ID.Key}
		}))
		e.Policy = policyFunc(func(h *durable.History, now time.Time) durable.Decision {
			d := durable.Schedule{}.Next(h, now)
			if d.At = now.Add(time.Hour); string(h.Intent.Payload) == "lost" && h.Attempts > 1 {
				return durable.Decision{Action: durable.Bury}
			}
			return d
		})
		im := durable.Import{Engine: e, Scope: "comp1", Operation: "POST /charges", Gateway: "psp", Batch: "invoices"}
		rows := sheet{
			{"a", "good"}, {"b", "bad"}, {"c", "bad"}, {"d", "bad"}, {"e", "later"}, {"f", "lost"}, {"g", "slow"},
			{"", "no key"}, {"h", "unreadable"}, {"a", "good"}, {"i", "withdrawn"},
		}
		run := func() durable.Report {
			t.Helper()
			report, err := im.Run(t.Context(), rows.rows())
			require.NoError(t, err)
			total := 0
			for _, n := range report.Counts {
				total += n
			}
			assert.Equal(t, len(report.Rows), total)
			return report
		}
		want := map[int]string{
			2: "accepted", 3: "accepted", 4: "accepted", 5: "accepted", 6: "accepted", 7: "accepted", 8: "accepted",
			9:  "invalid durable: invalid: idempotency: no key",
			10: "invalid the amount is no number", 11: "invalid durable: invalid: Row.Key is that of row 2", 12: "accepted",
		}
		first := run()
		got := statuses(first)
		want[9] = got[9] // the text of package idempotency
		assert.Contains(t, got[9], "invalid")
		assert.Equal(t, want, got)
		require.ErrorIs(t, first.Rows[7].Err, durable.ErrInvalid)
		assert.Equal(t, map[durable.RowStatus]int{durable.RowAccepted: 8, durable.RowInvalid: 3}, first.Counts)

		again := statuses(run())
		assert.Equal(t, "unchanged", again[2])
		require.NoError(t, e.Cancel(t.Context(), pay("comp1", "i").ID))

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			assert.NoError(t, errOf(e.Work(t.Context(), 100)))
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		want = map[int]string{
			2: "done ch_a", 3: "declined currency no such currency", 4: "declined currency no such currency", 5: "declined currency no such currency",
			6: "in progress", 7: "unknown timeout", 8: "in progress", 9: want[9], 10: want[10], 11: want[11], 12: "declined canceled",
		}
		assert.Equal(t, want, statuses(run()))

		for i := 1; i <= 3; i++ {
			rows[i][1] = "good"
		}
		rows[6][1] = "differs"
		before := maps.Clone(sent)
		report := run()
		for i := 3; i <= 5; i++ {
			want[i] = "revised"
		}
		want[8] = "in progress the row differs from what was enqueued under its key"
		assert.Equal(t, want, statuses(report))
		require.ErrorIs(t, report.Rows[6].Err, durable.ErrMismatch)
		close(hold)
		<-ended
		work(t, e, 100)
		for key, n := range sent {
			if mended := key == "b" || key == "c" || key == "d"; mended {
				assert.Equal(t, before[key]+1, n, key)
			} else {
				assert.Equal(t, before[key], n, key)
			}
		}
		time.Sleep(2 * time.Hour)
		work(t, e, 100)
		got = statuses(run())
		assert.Equal(t, "unknown unresolved timeout", got[7])
		assert.Equal(t, "done ch_b", got[3])
	})
}

func TestImportInvalid(t *testing.T) {
	good := durable.Import{Engine: through(gatewayFunc(nil)), Scope: "comp1", Operation: "op", Gateway: "psp"}
	for name, change := range map[string]func(*durable.Import){
		"no engine":          func(im *durable.Import) { im.Engine = nil },
		"an engine of none":  func(im *durable.Import) { im.Engine = new(durable.Engine) },
		"an unknown gateway": func(im *durable.Import) { im.Gateway = "other" },
		"a batch of bytes":   func(im *durable.Import) { im.Batch = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			im := good
			change(&im)
			report, err := im.Run(t.Context(), sheet{{"a", "good"}}.rows())
			require.ErrorIs(t, err, durable.ErrInvalid)
			assert.Empty(t, report.Rows)
		})
	}
	for status := range durable.RowStatus(20) {
		assert.Equal(t, status >= durable.RowAccepted && status <= durable.RowInvalid, status.String() != "")
	}
}

// An import that ends early, by an error of the store or of its reader, can be continued.
func TestImportFails(t *testing.T) {
	e, store := shakyStore(gatewayFunc(nil))
	im := durable.Import{Engine: e, Scope: "comp1", Operation: "op", Gateway: "psp"}
	var rows sheet
	for i := range 1200 {
		rows = append(rows, [2]string{strconv.Itoa(i), "good"})
	}
	store.set(func(string) error {
		if store.called("apply") == 2 {
			return errSilent
		}
		return nil
	})
	report, err := im.Run(t.Context(), rows.rows())
	require.ErrorIs(t, err, errSilent)
	assert.Len(t, report.Rows, 500)
	report, err = im.Run(t.Context(), rows.rows())
	require.NoError(t, err)
	assert.Equal(t, map[durable.RowStatus]int{durable.RowUnchanged: 1000, durable.RowAccepted: 200}, report.Counts)
	for i := range report.Rows {
		assert.Equal(t, i+2, report.Rows[i].Row)
	}
}

func TestEnqueueBatch(t *testing.T) {
	e, store := shakyStore(gatewayFunc(nil))
	intents := make([]durable.Intent, 0, 2500)
	for i := range 2500 {
		intents = append(intents, pay("comp1", strconv.Itoa(i)))
	}
	intents[7].Gateway = "other"
	intents[8].Payload = make([]byte, durable.LongestPayload+1)
	intents[9] = intents[6]
	results, err := e.EnqueueBatch(t.Context(), intents)
	require.NoError(t, err)
	assert.Equal(t, 3, store.called("apply"))
	require.Len(t, results, 2500)
	for i := range results {
		switch receipt := results[i].Receipt(); i {
		case 7, 8:
			require.ErrorIs(t, results[i].Err, durable.ErrInvalid)
		case 9:
			require.NoError(t, results[i].Err)
			assert.True(t, receipt.Existing)
		default:
			require.NoError(t, results[i].Err)
			assert.Equal(t, durable.Receipt{ID: intents[i].ID}, receipt)
		}
	}
	results, err = e.EnqueueBatch(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, results)
	store.set(func(string) error {
		if store.called("apply") == 5 {
			return errDown
		}
		return nil
	})
	results, err = e.EnqueueBatch(t.Context(), intents)
	require.ErrorIs(t, err, errDown)
	assert.Len(t, results, 1000)
	require.ErrorIs(t, errOf(new(durable.Engine).EnqueueBatch(t.Context(), intents)), durable.ErrInvalid)
}
