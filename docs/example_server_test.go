package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/transcript"
)

// arrival is a request that arrives at a server after a time.
type arrival struct {
	after             time.Duration
	field, name, body string
}

// responses sends the requests at their times, and returns a line for each. shown are fields of the responses.
func responses(t *testing.T, handler http.Handler, title string, arrivals []arrival, shown ...string) *events {
	t.Helper()
	srv := faulttest.NewInMemory(t, handler)
	e := newEvents(title, "took", "response")
	e.rows = make([][]string, len(arrivals))
	var all sync.WaitGroup
	for i, a := range arrivals {
		all.Go(func() {
			time.Sleep(a.after)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/charges", strings.NewReader(a.body))
			require.NoError(t, err)
			req.Header.Set(a.field, a.name)
			resp, err := srv.Client().Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			var problem struct{ Title string }
			text := string(body)
			if json.Unmarshal(body, &problem) == nil {
				text = problem.Title
			}
			took, response := time.Since(e.start.Add(a.after)), strings.TrimSpace(result(resp, nil)+" "+text)
			e.rows[i] = []string{
				transcript.Duration(a.after), strings.TrimSuffix(a.name+", "+a.body, ", "),
				transcript.Duration(took), response + fields(resp.Header, shown...),
			}
		})
	}
	all.Wait()
	return e
}

// serverIdempotencyExample sends requests with one key. An execution takes 100 ms.
func serverIdempotencyExample(t *testing.T) string {
	const ms = time.Millisecond
	var executions atomic.Int64
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := executions.Add(1)
		after(100*ms, faulttest.Reply{Status: http.StatusCreated, Body: fmt.Sprintf("charge %d", id)}).ServeHTTP(w, r)
	})
	tenant := func(*http.Request) (string, error) { return "acme", nil }
	const field, key = "Idempotency-Key", "invoice:001"
	e := responses(t, idempotency.NewHandler(new(idempotency.Memory), tenant, charge), "key, body", []arrival{
		{0, field, key, "100 €"}, {50 * ms, field, key, "100 €"}, {200 * ms, field, key, "100 €"}, {300 * ms, field, key, "900 €"},
	}, "Idempotency-Replayed", "Retry-After")
	return fmt.Sprintf("%sexecutions: %d", e, executions.Load())
}

// admissionExample has two slots and a queue of two. The work of a request takes 100 ms.
func admissionExample(t *testing.T) string {
	const ms = time.Millisecond
	shedder := &admission.Shedder{Initial: 2, Min: 2, Max: 2, Queue: 2, Priority: admission.PriorityFromHeader}
	const field = "X-Request-Priority"
	return responses(t, shedder.Handler(after(100*ms, faulttest.OK(""))), "priority", []arrival{
		{0, field, "default", ""}, {0, field, "batch", ""}, {10 * ms, field, "batch", ""}, {20 * ms, field, "default", ""},
		{30 * ms, field, "critical", ""}, {40 * ms, field, "batch", ""}, {150 * ms, field, "batch", ""},
	}, "Retry-After").String()
}

// process is the Store of a process. After its crash, it is another one: nothing that the process does has an effect.
type process struct{ durable.Store }

// changes are hooks that add a line for each change of an intent.
func changes(e *events, process string) *durable.Trace {
	return &durable.Trace{Changed: func(c *durable.Change) {
		state, outcome := c.Record.State.String(), c.Record.Reason
		if c.Before != c.Record.State {
			state = fmt.Sprintf("%s → %s", c.Before, c.Record.State)
		}
		if a := c.FinishedAttempt; a != nil && a.Status != 0 {
			outcome = fmt.Sprintf("%d: %s", a.Status, a.Class)
		} else if a != nil {
			outcome = a.Class.String() + ": " + a.Error
		}
		e.add(process, c.Record.ID.Key, state, outcome)
	}}
}

// durableExample has a process that crashes when its send is done and the response is on its way. A second process
// looks for due intents each ten seconds. The provider declines the other intent.
func durableExample(t *testing.T) string {
	var charges faulttest.Idempotent
	psp := faulttest.NewInMemory(t, faulttest.Script{
		{
			Match:   func(r *http.Request) bool { return r.Header.Get("X-Invoice") == "002" },
			Handler: usual(faulttest.Status(http.StatusUnprocessableEntity)),
		},
		{Handler: usual(&charges)},
	})
	store := new(durable.Memory)
	e := newEvents("process", "invoice", "state", "outcome")
	engine := func(name string, of durable.Store, base http.RoundTripper) *durable.Engine {
		return &durable.Engine{
			Store: of, Policy: durable.Schedule{Backoff: drawn(time.Second)}, Trace: changes(e, name),
			Gateways: map[string]durable.Gateway{"psp": durable.HTTP{
				Client: &http.Client{Transport: base},
				NewRequest: func(s *durable.Send) (*http.Request, error) {
					body := bytes.NewReader(s.Payload)
					req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, psp.URL+"/charges", body)
					if err == nil {
						req.Header.Set("X-Invoice", s.ID.Key)
					}
					return req, err
				},
			}},
		}
	}
	dying := &process{Store: store}
	running, end := context.WithCancel(t.Context())
	first := engine("first", dying, observed(func(req *http.Request) (*http.Response, error) {
		resp, err := psp.Transport().RoundTrip(req)
		synctest.Wait() // the process uses its Store no more until the crash
		dying.Store = new(durable.Memory)
		end()
		return resp, err
	}))
	second := engine("second", store, psp.Transport())
	enqueue := func(through *durable.Engine, key string) {
		_, err := through.Enqueue(t.Context(), durable.Intent{
			ID: idempotency.ID{Scope: "acme", Operation: "charge", Key: key}, Gateway: "psp", Payload: []byte("100"),
		})
		require.NoError(t, err)
	}
	enqueue(first, "001")
	go func() { _, _ = first.Work(running, 0) }()
	for i := range 5 {
		time.Sleep(10 * time.Second)
		if i == 4 {
			enqueue(second, "002")
		}
		_, err := second.Work(t.Context(), 0)
		require.NoError(t, err)
	}
	synctest.Wait()
	return e.String() + "\nThe provider:\n" + psp.Transcript()
}
