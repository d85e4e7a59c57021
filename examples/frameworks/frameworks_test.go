package frameworks

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}

// frameworks are all that serve the API.
func frameworks(s *service) map[string]http.Handler {
	return map[string]http.Handler{"net/http": s.netHTTP(), "chi": s.chi(), "echo": s.echo(), "gin": s.gin()}
}

func newService() *service { return &service{store: new(idempotency.Memory)} }

// send orders a charge under a key.
func send(t *testing.T, h http.Handler, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	r.SetBasicAuth("ann", "")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func replayed(w *httptest.ResponseRecorder) bool { return w.Header().Get("Idempotency-Replayed") == "true" }

func TestFrameworks(t *testing.T) {
	for name := range frameworks(newService()) {
		t.Run(name, func(t *testing.T) {
			s := newService()
			h := frameworks(s)[name]

			first, again := send(t, h, "paid", `{"amount": 10}`), send(t, h, "paid", `{"amount": 10}`)
			require.Equal(t, http.StatusCreated, first.Code)
			require.JSONEq(t, `{"id": 1, "amount": 10}`, first.Body.String())
			assert.False(t, replayed(first))
			assert.True(t, replayed(again))
			assert.Equal(t, first.Code, again.Code)
			assert.Equal(t, first.Body.String(), again.Body.String())
			assert.Equal(t, first.Header().Get("Content-Type"), again.Header().Get("Content-Type"))

			first, again = send(t, h, "declined", `{"amount": 2000}`), send(t, h, "declined", `{"amount": 2000}`)
			require.Equal(t, http.StatusPaymentRequired, first.Code)
			assert.Contains(t, first.Body.String(), errDeclined.Error())
			assert.True(t, replayed(again))
			assert.Equal(t, first.Code, again.Code)
			assert.Equal(t, first.Body.String(), again.Body.String())

			assert.Equal(t, http.StatusBadRequest, send(t, h, "malformed", `{"amount"`).Code)
			first, again = send(t, h, "no answer", `{"amount": -1}`), send(t, h, "no answer", `{"amount": -1}`)
			assert.Equal(t, http.StatusInternalServerError, first.Code)
			assert.Contains(t, first.Body.String(), errBank.Error())
			assert.False(t, replayed(again), "a failure is not a result")

			assert.Equal(t, http.StatusUnprocessableEntity, send(t, h, "paid", `{"amount": 11}`).Code)
			assert.EqualValues(t, 1, s.charges.Load())

			stranger := httptest.NewRecorder()
			h.ServeHTTP(stranger, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", http.NoBody))
			assert.Equal(t, http.StatusUnauthorized, stranger.Code)
		})
	}
}

// The operation's name is the route's own, so a key in flight survives a move to
// another framework.
func TestKeysSurviveAnotherFramework(t *testing.T) {
	s := newService()
	all := frameworks(s)
	first := send(t, all["net/http"], "k", `{"amount": 10}`)
	for name, h := range all {
		again := send(t, h, "k", `{"amount": 10}`)
		assert.True(t, replayed(again), name)
		assert.Equal(t, first.Body.String(), again.Body.String(), name)
	}
	assert.EqualValues(t, 1, s.charges.Load())
}

// gin's Stream works inside: nothing leaves before the end, and all of it is
// replayed.
func TestGinStream(t *testing.T) {
	s := newService()
	inside := gin.New()
	inside.POST("/charges", func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool {
			n++
			_, _ = io.WriteString(w, "line\n")
			return n < 3
		})
	})
	h := authenticate(s.once("export", inside))
	first, again := send(t, h, "k", ""), send(t, h, "k", "")
	assert.Equal(t, http.StatusOK, first.Code)
	assert.Equal(t, "line\nline\nline\n", first.Body.String())
	assert.True(t, replayed(again))
	assert.Equal(t, first.Body.String(), again.Body.String())
}
