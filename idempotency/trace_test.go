package idempotency_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// journal is a log in JSON.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: level}))
}

// lines are the records so far.
func (j *journal) lines(t *testing.T) []map[string]any {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	all := []map[string]any{}
	for line := range strings.Lines(j.text.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		all = append(all, fields)
	}
	return all
}

func TestLogTrace(t *testing.T) {
	hash := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(theKey)))[:19]
	memory := func(next http.HandlerFunc, change ...func(*idempotency.Handler)) *rig {
		return newRig(new(idempotency.Memory), next, change...)
	}
	failing := func(verb string, err error, next http.HandlerFunc) *rig {
		return newRig(faulty(new(idempotency.Memory), rule{verb, 1, 0, fault{before: err}}), next)
	}
	slow := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(11 * time.Second)
		w.WriteHeader(http.StatusOK)
	}
	store := new(idempotency.Memory)
	duplicate := newRig(store, answer(200, ""))
	crash(t, duplicate.Handler, store, request(t))
	const unknown = "error=idempotency: the work does not know whether it took effect"
	for _, row := range []struct {
		name string
		rig  *rig
		runs int      // requests
		want []string // the records, without what all have
	}{
		{"executed and replayed", memory(answer(201, "made")), 2, []string{
			"DEBUG request_handled disposition=executed generation=1 http.response.status_code=201",
			"INFO request_handled disposition=replayed http.response.status_code=201",
		}},
		{"released", memory(answer(503, "")), 1, []string{"INFO request_handled disposition=released generation=1 http.response.status_code=503"}},
		{"in doubt", memory(answer(500, "")), 1, []string{
			"ERROR outcome_unknown " + unknown + " generation=1",
			"ERROR request_handled disposition=unknown " + unknown + " generation=1 http.response.status_code=500",
		}},
		{"nothing written", newRig(newLedger(), func(http.ResponseWriter, *http.Request) {}, transactional), 1, []string{
			"INFO request_handled disposition=released error=idempotency: the handler has written neither header nor body generation=1 http.response.status_code=500",
		}},
		{"unreplayable", memory(answer(200, "made"), func(h *idempotency.Handler) { h.MaxResponse = 1 }), 2, []string{
			"DEBUG request_handled disposition=executed generation=1 http.response.status_code=200",
			"INFO request_handled disposition=unreplayable http.response.status_code=409",
		}},
		{"panicked and doubtful", memory(func(http.ResponseWriter, *http.Request) { panic(theBody) }), 2, []string{
			"ERROR outcome_unknown error=idempotency: the work panicked generation=1",
			"ERROR request_handled disposition=panicked error=idempotency: the work panicked generation=1",
			"ERROR request_handled disposition=unknown http.response.status_code=409",
		}},
		{"duplicate", duplicate, 1, []string{"INFO request_handled disposition=in_progress http.response.status_code=409"}},
		{"store failed", newRig(faulty(new(idempotency.Memory), rule{onReserve, 1, always, fault{before: errDown}}), answer(200, "")), 1, []string{
			"ERROR request_handled disposition=store_failed error=" + errDown.Error() + " http.response.status_code=503",
		}},
		{"lease_lost", failing(onComplete, idempotency.ErrLeaseLost, answer(200, "")), 1, []string{
			"ERROR request_handled disposition=lease_lost error=" + idempotency.ErrLeaseLost.Error() + " generation=1 http.response.status_code=503",
		}},
		{"a renewal", failing(onRenew, errDown, slow), 1, []string{
			"WARN lease_renewal_failed error=" + errDown.Error() + " generation=1",
			"DEBUG request_handled disposition=executed generation=1 http.response.status_code=200",
		}},
		{"misconfigured", newRig(nil, answer(200, "")), 1, []string{
			"ERROR request_handled disposition=misconfigured error=idempotency: invalid: Store is nil http.response.status_code=500",
		}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var j journal
			row.rig.Trace = idempotency.LogTrace(j.logger(slog.LevelDebug))
			for range row.runs {
				req := request(t)
				req.Header.Set("Authorization", "Bearer secret-token")
				servePanicking(row.rig, req)
			}
			var got []string
			for _, line := range j.lines(t) {
				assert.Equal(t, strings.ReplaceAll(line["event"].(string), "_", " "), line["msg"])
				text := fmt.Sprint(line["level"], " ", line["event"])
				operation, key := "POST /charges", hash
				if row.name == "misconfigured" {
					operation, key = "", ""
				}
				assert.Equal(t, []any{"", operation, key}, []any{line["scope"], line["operation"], line["idempotency_key_hash"]})
				if line["event"] == "request_handled" {
					assert.Contains(t, line, "duration")
					assert.Contains(t, line, "work_duration")
				}
				assert.Equal(t, line["generation"] != nil, line["execution"] != nil && line["execution"] != "")
				for _, of := range []string{"time", "level", "event", "msg", "scope", "operation", "idempotency_key_hash", "duration", "work_duration", "execution"} {
					delete(line, of)
				}
				for _, of := range slices.Sorted(maps.Keys(line)) {
					text += fmt.Sprintf(" %s=%v", of, line[of])
				}
				got = append(got, text)
			}
			assert.Equal(t, row.want, got)
			for _, secret := range []string{theKey, "amount", "secret-token", "made"} {
				assert.NotContains(t, j.text.String(), secret)
			}
		})
	}
}

func TestLogTrace_rejections(t *testing.T) {
	for _, row := range []struct {
		name    string
		request func(*http.Request)
	}{
		{"no key", func(r *http.Request) { r.Header.Del("Idempotency-Key") }},
		{"a malformed key", func(r *http.Request) { r.Header.Set("Idempotency-Key", theKey+"\x00") }},
		{"no scope", func(r *http.Request) { r.Header.Set("Tenant", "unknown") }},
		{"a body that fails", func(r *http.Request) { r.Body = io.NopCloser(brokenReader{strings.NewReader(theBody)}) }},
		{"a large body", func(r *http.Request) { withBody(r, theBody+theBody) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			r := newRig(new(idempotency.Memory), answer(200, ""), func(h *idempotency.Handler) { h.MaxBody = int64(len(theBody)) })
			r.Trace = idempotency.LogTrace(j.logger(slog.LevelInfo))
			req := request(t)
			row.request(req)
			serve(r, req)
			lines := j.lines(t)
			require.Len(t, lines, 1)
			assert.Equal(t, "invalid", lines[0]["disposition"])
			assert.Equal(t, "INFO", lines[0]["level"])
			assert.NotContains(t, j.text.String(), theKey)
			assert.NotContains(t, j.text.String(), "amount")
		})
	}
}

func TestLogTrace_defaultLogger(t *testing.T) {
	var j journal
	trace := idempotency.LogTrace(nil)
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(j.logger(slog.LevelDebug))
	x := idempotency.Executor{Store: new(idempotency.Memory), Trace: trace}
	require.NoError(t, errOf(x.Do(t.Context(), doID, "", func(context.Context) (idempotency.Result, error) { return doResult, nil })))
	lines := j.lines(t)
	require.Len(t, lines, 1)
	assert.Equal(t, "executed", lines[0]["disposition"])
	assert.Equal(t, "comp1", lines[0]["scope"])
	assert.NotContains(t, lines[0], "http.response.status_code")
}

func TestEventTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onReserve, 1, 0, fault{delay: time.Second}}, rule{onComplete, 1, 0, fault{delay: 2 * time.Second}})
		r := newRig(store, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Second)
			w.WriteHeader(http.StatusOK)
		})
		req := request(t)
		serve(r, req)
		event := r.last(t)
		assert.Equal(t, 8*time.Second, event.Latency)
		var j journal
		idempotency.LogTrace(j.logger(slog.LevelDebug)).Done(&event)
		assert.InDelta(t, 5*time.Second, j.lines(t)[0]["work_duration"], 0)
		assert.Equal(t, req, event.Request)
		assert.NotEmpty(t, event.Owner)
		r.post(t)
		event = r.last(t)
		assert.Empty(t, event.Owner)
	})
}
