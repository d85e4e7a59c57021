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
	type line = map[string]any
	for _, row := range []struct {
		name string
		rig  func() *rig
		runs int // requests
		want []line
	}{
		{
			name: "executed and replayed", rig: func() *rig { return newRig(new(idempotency.Memory), answer(201, "made")) }, runs: 2,
			want: []line{
				{"level": "DEBUG", "event": "request_handled", "disposition": "executed", "http.response.status_code": 201.0, "generation": 1.0},
				{"level": "INFO", "event": "request_handled", "disposition": "replayed", "http.response.status_code": 201.0},
			},
		},
		{
			name: "released", rig: func() *rig { return newRig(new(idempotency.Memory), answer(503, "")) }, runs: 1,
			want: []line{{"level": "INFO", "event": "request_handled", "disposition": "released", "http.response.status_code": 503.0, "generation": 1.0}},
		},
		{
			name: "in doubt", rig: func() *rig { return newRig(new(idempotency.Memory), answer(500, "")) }, runs: 1,
			want: []line{
				{"level": "ERROR", "event": "outcome_unknown", "generation": 1.0, "error": "idempotency: the work does not know whether it took effect"},
				{
					"level": "ERROR", "event": "request_handled", "disposition": "unknown", "http.response.status_code": 500.0, "generation": 1.0,
					"error": "idempotency: the work does not know whether it took effect",
				},
			},
		},
		{
			name: "nothing written", rig: func() *rig { return newRig(newLedger(), func(http.ResponseWriter, *http.Request) {}, transactional) }, runs: 1,
			want: []line{{
				"level": "INFO", "event": "request_handled", "disposition": "released", "http.response.status_code": 500.0, "generation": 1.0,
				"error": "idempotency: the handler has written neither header nor body",
			}},
		},
		{
			name: "unreplayable",
			rig: func() *rig {
				return newRig(new(idempotency.Memory), answer(200, "made"), func(h *idempotency.Handler) { h.MaxResponse = 1 })
			},
			runs: 2,
			want: []line{
				{"level": "DEBUG", "event": "request_handled", "disposition": "executed", "http.response.status_code": 200.0, "generation": 1.0},
				{"level": "INFO", "event": "request_handled", "disposition": "unreplayable", "http.response.status_code": 409.0},
			},
		},
		{
			name: "panicked and doubtful", rig: func() *rig {
				return newRig(new(idempotency.Memory), func(http.ResponseWriter, *http.Request) { panic(theBody) })
			}, runs: 2,
			want: []line{
				{"level": "ERROR", "event": "outcome_unknown", "generation": 1.0, "error": "idempotency: the work panicked"},
				{"level": "ERROR", "event": "request_handled", "disposition": "panicked", "generation": 1.0, "error": "idempotency: the work panicked"},
				{"level": "ERROR", "event": "request_handled", "disposition": "unknown", "http.response.status_code": 409.0},
			},
		},
		{
			name: "duplicate", rig: func() *rig {
				store := new(idempotency.Memory)
				r := newRig(store, answer(200, ""))
				crash(t, r.Handler, store, request(t))
				return r
			}, runs: 1,
			want: []line{{"level": "INFO", "event": "request_handled", "disposition": "in_progress", "http.response.status_code": 409.0}},
		},
		{
			name: "store failed", rig: func() *rig {
				return newRig(faulty(new(idempotency.Memory), rule{onReserve, 1, always, fault{before: errDown}}), answer(200, ""))
			}, runs: 1,
			want: []line{{"level": "ERROR", "event": "request_handled", "disposition": "store_failed", "http.response.status_code": 503.0, "error": errDown.Error()}},
		},
		{
			name: "lease_lost", rig: func() *rig {
				return newRig(faulty(new(idempotency.Memory), rule{onComplete, 1, 0, fault{before: idempotency.ErrLeaseLost}}), answer(200, ""))
			}, runs: 1,
			want: []line{{
				"level": "ERROR", "event": "request_handled", "disposition": "lease_lost", "http.response.status_code": 503.0, "generation": 1.0,
				"error": idempotency.ErrLeaseLost.Error(),
			}},
		},
		{
			name: "a renewal", rig: func() *rig {
				return newRig(faulty(new(idempotency.Memory), rule{onRenew, 1, 0, fault{before: errDown}}), func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(11 * time.Second)
					w.WriteHeader(http.StatusOK)
				})
			}, runs: 1,
			want: []line{
				{"level": "WARN", "event": "lease_renewal_failed", "generation": 1.0, "error": errDown.Error()},
				{"level": "DEBUG", "event": "request_handled", "disposition": "executed", "http.response.status_code": 200.0, "generation": 1.0},
			},
		},
		{
			name: "misconfigured", rig: func() *rig { return newRig(nil, answer(200, "")) }, runs: 1,
			want: []line{{
				"level": "ERROR", "event": "request_handled", "disposition": "misconfigured", "http.response.status_code": 500.0, "operation": "", "idempotency_key_hash": "",
				"error": "idempotency: invalid: Store is nil",
			}},
		},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var j journal
			r := row.rig()
			r.Trace = idempotency.LogTrace(j.logger(slog.LevelDebug))
			for range row.runs {
				req := request(t)
				req.Header.Set("Authorization", "Bearer secret-token")
				servePanicking(r, req)
			}
			lines := j.lines(t)
			require.Len(t, lines, len(row.want))
			for i, got := range lines {
				want := line{"scope": "", "operation": "POST /charges", "idempotency_key_hash": hash, "msg": strings.ReplaceAll(got["event"].(string), "_", " ")}
				maps.Copy(want, row.want[i])
				if _, ok := want["generation"]; ok {
					assert.NotEmpty(t, got["execution"])
					delete(got, "execution")
				}
				delete(got, "time")
				if got["event"] == "request_handled" {
					assert.Contains(t, got, "duration")
					assert.Contains(t, got, "work_duration")
					delete(got, "duration")
					delete(got, "work_duration")
				}
				assert.Equal(t, want, got)
			}
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
	_, err := x.Do(t.Context(), doID, "", func(context.Context) (idempotency.Result, error) { return doResult, nil })
	require.NoError(t, err)
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
