package sdks

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/go-resty/resty/v2"
	vault "github.com/hashicorp/vault/api"
	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// ownNodes returns a Transport for a client that chooses another node by itself.
func ownNodes(base http.RoundTripper) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base:        base,
		Policy:      resilienthttp.Policy{MaxAttempts: -1},     // the next attempt goes to another node
		Breaker:     &resilienthttp.Breaker{MaxWait: -1},       // an open circuit rejects at once
		Idempotency: resilienthttp.Idempotency{Disabled: true}, // these APIs ignore keys
	}
}

// §4.32: a client with several nodes goes to the next one at once, if its Transport neither repeats a request nor waits for a circuit.
func TestClientWithNodes(t *testing.T) {
	for _, row := range []struct {
		name      string
		sick      func(*faulttest.Server)
		transport func(http.RoundTripper) *resilienthttp.Transport
		slow      bool
	}{
		{"503, defaults: each call waits for the sick node", nil, defaults, true},
		{"503, two settings", nil, ownNodes, false},
		{"connection refused, defaults: it waits", (*faulttest.Server).Close, defaults, true},
		{"connection refused, two settings", (*faulttest.Server).Close, ownNodes, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				healthy := &faulttest.Server{Host: "healthy.test", InMemory: true, Script: faulttest.OK("fine")}
				healthy.Start(t)
				sick := &faulttest.Server{Host: "sick.test", Network: healthy, Script: faulttest.Status(503)}
				sick.Start(t)
				if row.sick != nil {
					row.sick(sick)
				}
				client, err := elastictransport.NewClient(
					elastictransport.WithURLs(&url.URL{Scheme: "http", Host: "sick.test"}, &url.URL{Scheme: "http", Host: "healthy.test"}),
					elastictransport.WithTransport(row.transport(healthy.Transport())),
				)
				require.NoError(t, err)
				defer func() { require.NoError(t, client.Close(context.Background())) }()
				var longest time.Duration
				for range 100 {
					time.Sleep(20 * time.Millisecond) // virtual
					begin := time.Now()
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/_search", nil)
					require.NoError(t, err)
					resp, err := client.Perform(req)
					close1(t, resp, err)
					require.Equal(t, 200, resp.StatusCode)
					longest = max(longest, time.Since(begin))
				}
				if row.slow {
					assert.Greater(t, longest, time.Second)
				} else {
					assert.Zero(t, longest, "no wait at all")
				}
			})
		})
	}
}

func defaults(base http.RoundTripper) *resilienthttp.Transport {
	return &resilienthttp.Transport{Base: base}
}

// §4.32: the ping of docker asks whether the daemon is there. It sends a HEAD and then a GET, and each would wait for a daemon that is away.
func TestDockerPing(t *testing.T) {
	for _, row := range []struct {
		name   string
		single bool
		slow   bool
	}{{"defaults: it waits twice", false, true}, {"a single attempt", true, false}} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				daemon := faulttest.NewInMemory(t, faulttest.OK("OK"))
				daemon.Close()
				transport := &resilienthttp.Transport{Base: daemon.Transport(), Breaker: &resilienthttp.Breaker{MaxWait: -1}}
				client, err := docker.New(docker.WithHost("tcp://fault.test"), docker.WithHTTPClient(&http.Client{Transport: transport}))
				require.NoError(t, err)
				ctx := t.Context()
				if row.single {
					ctx = resilienthttp.WithSingleAttempt(ctx)
				}
				begin := time.Now()
				_, err = client.Ping(ctx, docker.PingOptions{})
				require.True(t, docker.IsErrConnectionFailed(err), "%v", err)
				assert.Equal(t, row.slow, time.Since(begin) > time.Second, "%v", time.Since(begin))
			})
		})
	}
}

// newVault returns a client of Vault. The Transport is set after all that changes the *http.Transport.
func newVault(ca []byte) (*vault.Client, error) {
	config := vault.DefaultConfig()
	if err := config.ConfigureTLS(&vault.TLSConfig{CACertBytes: ca}); err != nil {
		return nil, err
	}
	config.HttpClient.Transport = &resilienthttp.Transport{Base: config.HttpClient.Transport} // last
	return vault.NewClient(config)
}

// Some SDKs change the *http.Transport that they find. So the Transport is set last, or gets an *http.Transport that is ready.
func TestSetTheTransportLast(t *testing.T) {
	transport := &resilienthttp.Transport{}
	client := &http.Client{Transport: transport}

	_, err := docker.New(docker.WithHTTPClient(client), docker.WithHost("tcp://docker.test"))
	require.ErrorContains(t, err, "cannot apply host to transport")
	_, err = docker.New(docker.WithHost("tcp://docker.test"), docker.WithHTTPClient(client))
	require.NoError(t, err)

	_, err = elastictransport.NewClient(elastictransport.WithTransport(transport), elastictransport.WithCACert([]byte("certificate")))
	require.ErrorContains(t, err, "unable to set CA certificate")
	fingerprinted, err := elastictransport.NewClient(
		elastictransport.WithURLs(&url.URL{Scheme: "https", Host: "elastic.test"}),
		elastictransport.WithTransport(transport), elastictransport.WithCertificateFingerprint("of no certificate"),
	)
	require.NoError(t, err, "ignored")
	require.NoError(t, fingerprinted.Close(t.Context()))

	config := vault.DefaultConfig()
	config.HttpClient.Transport = transport
	early, err := vault.NewClient(config)
	require.NoError(t, err)
	require.Panics(t, func() { early.SetMaxIdleConnections(1) })
	require.Panics(t, func() { early.SetDisableKeepAlives(true) })
	require.Panics(t, func() { _ = early.MaxIdleConnections() })
	require.Panics(t, func() { _ = early.DisableKeepAlives() })
	require.Error(t, config.ConfigureTLS(&vault.TLSConfig{Insecure: true}))

	api := httptest.NewTLSServer(faulttest.OK(`{"initialized":true}`))
	defer api.Close()
	late, err := newVault(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}))
	require.NoError(t, err)
	require.NoError(t, late.SetAddress(api.URL))
	health, err := late.Sys().HealthWithContext(t.Context())
	require.NoError(t, err)
	assert.True(t, health.Initialized)
}

// restyLog counts the errors that resty logs.
type restyLog struct{ errors int }

func (l *restyLog) Errorf(string, ...any) { l.errors++ }
func (*restyLog) Warnf(string, ...any)    {}
func (*restyLog) Debugf(string, ...any)   {}

// Resty only logs that it cannot change the Transport.
func TestSetTheTransportLast_resty(t *testing.T) {
	log := &restyLog{}
	transport := &resilienthttp.Transport{}
	client := resty.New().SetLogger(log).SetTransport(transport)
	client.SetTLSClientConfig(&tls.Config{MinVersion: tls.VersionTLS13})
	client.SetProxy("http://proxy.test")
	client.SetRootCertificateFromString("certificate")
	require.Equal(t, 3, log.errors)
	require.False(t, client.IsProxySet())
	require.Same(t, transport, client.GetClient().Transport)
}

// once returns a Transport for tests of an SDK against a server that always fails.
func once(base http.RoundTripper) *resilienthttp.Transport {
	return &resilienthttp.Transport{
		Base:    base,
		Policy:  resilienthttp.Policy{MaxAttempts: -1},
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},
	}
}

// A test of an SDK against a server that always answers 500 sends each call once, and is never rejected by the circuit.
func TestAgainst500(t *testing.T) {
	for _, row := range []struct {
		name              string
		transport         func(http.RoundTripper) *resilienthttp.Transport
		calls, requests   int
		shortest, longest time.Duration
	}{
		{"defaults", defaults, 1, 5, 4 * time.Second, 20 * time.Second},
		{"one attempt, also after the number of failures that opens a circuit", once, 40, 40, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := faulttest.NewInMemory(t, faulttest.Status(500))
				client := &http.Client{Transport: row.transport(api.Transport())}
				begin := time.Now()
				for range row.calls {
					resp, err := client.Post(api.URL, "text/plain", http.NoBody)
					close1(t, resp, err)
					require.Equal(t, 500, resp.StatusCode)
				}
				took := time.Since(begin)
				assert.GreaterOrEqual(t, len(api.Requests()), row.requests) // or one more: the waits are random
				assert.True(t, row.shortest <= took && took <= row.longest, "%v", took)
			})
		})
	}
}

// A canceled call has sent nothing, or has an attempt with an unknown result. Its error is not context.Canceled itself.
func TestCanceledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := faulttest.NewInMemory(t, faulttest.Reply{Status: 503})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel) // in the wait for the retry
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, http.NoBody)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: defaults(api.Transport())}).Do(req)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		require.ErrorIs(t, err, context.Canceled)
		failed, ok := errors.AsType[*url.Error](err)
		require.True(t, ok)
		assert.NotEqual(t, context.Canceled, failed.Err)
		ours, ok := errors.AsType[*resilienthttp.Error](err)
		require.True(t, ok)
		assert.Equal(t, 503, ours.Attempts[0].Response.StatusCode)
		assert.True(t, resilienthttp.InDoubt(nil, err))
	})
}
