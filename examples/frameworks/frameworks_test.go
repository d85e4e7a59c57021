package frameworks

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}

// frameworks returns the handler of each framework.
func frameworks(s *service) map[string]http.Handler {
	return map[string]http.Handler{"net/http": s.netHTTP(), "chi": s.chi(), "echo": s.echo(), "gin": s.gin()}
}

func newService() *service { return &service{store: new(idempotency.Memory)} }

// send sends an order with a key.
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

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotency-Replayed") == "true"
}

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
			first, again = send(t, h, "no response", `{"amount": -1}`), send(t, h, "no response", `{"amount": -1}`)
			assert.Equal(t, http.StatusInternalServerError, first.Code)
			assert.Contains(t, first.Body.String(), errBank.Error())
			assert.False(t, replayed(again), "a failure is not a result")

			assert.Equal(t, http.StatusUnprocessableEntity, send(t, h, "paid", `{"amount": 11}`).Code)
			assert.EqualValues(t, 1, s.charges.Load())

			unauthenticated := httptest.NewRecorder()
			h.ServeHTTP(unauthenticated, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", http.NoBody))
			assert.Equal(t, http.StatusUnauthorized, unauthenticated.Code)
		})
	}
}

// The name of the operation does not depend on the framework, so keys remain valid with another
// one.
func TestFrameworks_shareKeys(t *testing.T) {
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

// An anti-pattern in echo: with WrapMiddleware, an error is written after the execution. The
// response is an error and is not stored.
func TestEcho_wrapMiddlewareIsNoResponse(t *testing.T) {
	s := newService()
	e := echo.New()
	e.Logger.SetOutput(io.Discard) // it logs that it cannot write
	e.Use(echo.WrapMiddleware(authenticate))
	charges := func(next http.Handler) http.Handler { return s.once("charge", next) }
	e.POST("/charges", s.echoCharge, echo.WrapMiddleware(charges))
	for _, want := range []string{"no-response", "unknown"} {
		w := send(t, e, "declined", `{"amount": 2000}`)
		assert.GreaterOrEqual(t, w.Code, http.StatusBadRequest)
		assert.Contains(t, w.Body.String(), "#"+want)
		assert.False(t, replayed(w))
	}
}

// I8: middleware that decompresses bodies keeps the Content-Length of the compressed one, which may be longer.
func TestEcho_decompressesBodies(t *testing.T) {
	s := newService()
	e := echo.New()
	e.Use(middleware.Decompress(), echo.WrapMiddleware(authenticate))
	e.POST("/charges", s.echoCharge, echoOnce(s, "charge"))
	server := httptest.NewServer(e)
	defer server.Close()
	const body = `{"amount": 10}`
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, body)
	require.NoError(t, w.Close())
	require.Greater(t, packed.Len(), len(body))
	for _, again := range []string{"", "true"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/charges", bytes.NewReader(packed.Bytes()))
		require.NoError(t, err)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}, "Idempotency-Key": {"k"}}
		r.SetBasicAuth("ann", "")
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusCreated, resp.StatusCode, "%s", text)
		require.Equal(t, again, resp.Header.Get("Idempotency-Replayed"))
	}
	assert.EqualValues(t, 1, s.charges.Load())
}

// A handler that writes nothing has no response, unless the framework writes one.
func TestOnce_nothingWrittenIsNoResponse(t *testing.T) {
	s := newService()
	empty := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux, r, e := http.NewServeMux(), chi.NewRouter(), echo.New()
	mux.Handle("POST /charges", s.once("nothing, net/http", empty))
	r.With(func(next http.Handler) http.Handler { return s.once("nothing, chi", next) }).Post("/charges", empty)
	e.POST("/charges", func(echo.Context) error { return nil }, echoOnce(s, "nothing, echo"))
	for name, h := range map[string]http.Handler{"net/http": mux, "chi": r, "echo": e} {
		w := send(t, authenticate(h), "k", "")
		assert.Equal(t, http.StatusInternalServerError, w.Code, name)
		assert.Contains(t, w.Body.String(), "#no-response", name)
	}
}

// A response that cannot be stored is an error, also if gin's Recovery stops the panic that closes
// the connection.
func TestGin_recoveryDoesNotHideLostResponse(t *testing.T) {
	s := newService()
	exports := s.once("export", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	}))
	exports.MaxResponse, exports.MaxSpool = 10, 50
	engine := gin.New()
	engine.Use(gin.RecoveryWithWriter(io.Discard), ginAuthenticate)
	engine.POST("/charges", gin.WrapH(exports))
	assert.Equal(t, http.StatusServiceUnavailable, send(t, engine, "k", "").Code)
	assert.Contains(t, send(t, engine, "k", "").Body.String(), "unreplayable")
}

// gin's Stream works: the response is sent after its end, and replayed.
func TestGin_stream(t *testing.T) {
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
