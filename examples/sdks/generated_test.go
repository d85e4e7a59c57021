package sdks

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	ory "github.com/ory/client-go"
	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// created is an endpoint that creates a resource of this JSON once for each key.
func created(body string) *faulttest.Idempotent {
	return &faulttest.Idempotent{Handler: faulttest.Reply{Status: http.StatusCreated, Body: body, Header: http.Header{"Content-Type": {"application/json"}}}}
}

// A client of openapi-generator (here Ory's) has the http.Client in its configuration.
func TestOpenAPIGenerator(t *testing.T) {
	identities := created(`{"id":"i1","schema_id":"user","schema_url":"u","traits":{"email":"a@test"}}`)
	api := start(t, faulttest.Sequence(faulttest.LoseResponse(identities), identities))
	configuration := ory.NewConfiguration()
	configuration.Servers = ory.ServerConfigurations{{URL: api.URL}}
	configuration.HTTPClient = &http.Client{Transport: &resilienthttp.Transport{Policy: quick()}}

	identity, resp, err := ory.NewAPIClient(configuration).IdentityAPI.CreateIdentity(t.Context()).
		CreateIdentityBody(ory.CreateIdentityBody{SchemaId: "user", Traits: map[string]any{"email": "a@test"}}).Execute()
	close1(t, resp, err)
	assert.Equal(t, "i1", identity.Id)
	assert.Len(t, resilienthttp.Attempts(resp), 2)
	api.AssertKeys(t, 1)
	identities.AssertExactlyOnce(t, 1)
}

// byLevel gives each RPC what its idempotency_level promises. Connect sends every RPC as a POST. One
// that is IDEMPOTENT gets a key, so it is retried; another one is not retried once it was sent.
// One without side effects is a GET, with connect.WithHTTPGet.
func byLevel(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IdempotencyLevel == connect.IdempotencyIdempotent {
			ctx = resilienthttp.WithIdempotencyKey(ctx, uuid.NewString())
		}
		return next(ctx, req)
	}
}

// The first response of each RPC is lost. Only what may be repeated is repeated. A generated client makes its
// connect.Client as this test does, with the level that its .proto says.
func TestConnect(t *testing.T) {
	const procedure = "/charges.v1.ChargeService/Describe"
	for _, row := range []struct {
		name       string
		level      connect.IdempotencyLevel
		method     string
		executions int
		fails      bool
	}{
		{"no level: one request", connect.IdempotencyUnknown, http.MethodPost, 1, true},
		{"IDEMPOTENT: repeated", connect.IdempotencyIdempotent, http.MethodPost, 2, false},
		{"NO_SIDE_EFFECTS: a GET, repeated", connect.IdempotencyNoSideEffects, http.MethodGet, 2, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			executions := 0
			describe := func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
				executions++
				return connect.NewResponse(req.Msg), nil
			}
			handler := connect.NewUnaryHandler(procedure, describe, connect.WithIdempotency(row.level))
			api := start(t, faulttest.Sequence(faulttest.LoseResponse(handler), handler))
			noKeys := resilienthttp.Idempotency{Disabled: true}
			transport := &resilienthttp.Transport{Policy: quick(), Idempotency: noKeys}
			client := connect.NewClient[text, text](&http.Client{Transport: transport}, api.URL+procedure,
				connect.WithInterceptors(connect.UnaryInterceptorFunc(byLevel)),
				connect.WithHTTPGet(), connect.WithIdempotency(row.level))

			_, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("the first charge")))
			assert.Equal(t, row.fails, err != nil, "%v", err)
			api.AssertRequests(t, row.executions)
			assert.Equal(t, row.method, api.Requests()[0].Method)
			assert.Equal(t, row.executions, executions)
		})
	}
}

// text is a message of the RPC.
type text = wrapperspb.StringValue
