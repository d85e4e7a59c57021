package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/crashtest/internal/bank"
	"github.com/resilienthttp/resilienthttp/crashtest/internal/chaos"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// till is the service and its bank in one process.
type till struct {
	service *service
	bank    *bank.Bank
	client  *bankClient
}

// newTill returns a till with a middleware of the bank.
func newTill(t *testing.T, around func(http.Handler) http.Handler) *till {
	t.Helper()
	dir := t.TempDir()
	ledger, err := openLedger(t.Context(), paymentsApp, chaos.SQLite, filepath.Join(dir, "payments.db"))
	require.NoError(t, err)
	t.Cleanup(ledger.close)
	b, err := bank.Open(bank.Options{Ledger: filepath.Join(dir, "bank.jsonl")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	server := httptest.NewServer(around(b.Handler()))
	t.Cleanup(server.Close)
	there := &bankClient{&http.Client{Transport: toServer{server}}}
	return &till{&service{ledger: ledger, bank: there, lease: time.Minute}, b, there}
}

// toServer sends all requests to a server.
type toServer struct{ *httptest.Server }

func (s toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = s.Listener.Addr().String()
	return http.DefaultTransport.RoundTrip(r)
}

// order sends an order with its reference as the key.
func (s *till) order(reference string, amount int) *httptest.ResponseRecorder {
	body := fmt.Sprintf(`{"reference":%q,"amount":%d}`, reference, amount)
	req := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	req.Header.Set("Idempotency-Key", reference)
	answer := httptest.NewRecorder()
	s.service.order().ServeHTTP(answer, req)
	return answer
}

// unknown returns the keys with an unknown outcome.
func (s *till) unknown(t *testing.T) (keys []string) {
	t.Helper()
	for record, err := range s.service.ledger.records.Unknown(t.Context(), "") {
		require.NoError(t, err)
		keys = append(keys, record.Key)
	}
	return keys
}

// The bank's bookings determine the record of an unknown outcome.
func TestReconcile(t *testing.T) {
	for _, row := range []struct {
		name  string
		chaos chaos.Responses // of the bank, at the first order only

		ended        bool
		booked, none int
		left         bool // Unknown
	}{
		{"lost response, executions may run: completed", chaos.Responses{Lose: 1}, false, 1, 0, false},
		{"lost response, executions have ended: completed", chaos.Responses{Lose: 1}, true, 1, 0, false},
		{"lost request, executions may run: still unknown", chaos.Responses{}, false, 0, 0, true},
		{"lost request, executions have ended: released", chaos.Responses{}, true, 0, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			first := true
			s := newTill(t, func(there http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case !first || r.Method != http.MethodPost:
						there.ServeHTTP(w, r)
					case row.chaos.Lose > 0:
						first = false
						row.chaos.Handler(there).ServeHTTP(w, r)
					default:
						first = false
						chaos.Reset(w)
					}
				})
			})
			assert.Equal(t, http.StatusBadGateway, s.order("one", 101).Code)
			assert.Equal(t, http.StatusConflict, s.order("one", 101).Code)
			assert.Equal(t, []string{"one"}, s.unknown(t))

			reconciling := &reconciler{store: s.service.ledger.records, bank: s.client}
			n, err := reconciling.reconcile(t.Context(), row.ended)
			require.NoError(t, err)
			assert.Equal(t, row.booked+row.none, n)
			assert.Equal(t, []int{row.booked, row.none}, []int{reconciling.booked, reconciling.none})
			assert.Equal(t, row.left, len(s.unknown(t)) > 0)
			if row.left {
				assert.Equal(t, http.StatusConflict, s.order("one", 101).Code)
				return
			}

			answer := s.order("one", 101)
			assert.Equal(t, http.StatusCreated, answer.Code)
			require.Len(t, s.bank.Booked("one"), 1)
			direct := httptest.NewRecorder()
			bank.WriteReceipt(direct, s.bank.Booked("one")[0])
			assert.Equal(t, direct.Body.String(), answer.Body.String(), "the response of the service")
			assert.Equal(t, direct.Header()["Content-Type"], answer.Header()["Content-Type"])
		})
	}
}

// A declined order is final. A busy bank frees the key.
func TestNonTransactional_bankHasBookedNothing(t *testing.T) {
	var next http.Handler
	s := newTill(t, func(bank http.Handler) http.Handler {
		next = bank
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	})
	s.bank.Busy = 1
	assert.Equal(t, http.StatusServiceUnavailable, s.order("one", 101).Code)
	s.bank.Busy = 0
	assert.Equal(t, http.StatusCreated, s.order("one", 101).Code)
	assert.Len(t, s.bank.Booked("one"), 1)

	assert.Equal(t, http.StatusPaymentRequired, s.order("two", 100).Code)
	assert.NotEmpty(t, s.order("two", 100).Header().Get("Idempotency-Replayed"))
	assert.Empty(t, s.bank.Booked("two"))
	assert.Empty(t, s.unknown(t))
}
