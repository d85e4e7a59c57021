package resilienthttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// TestRetriesOfAnSDK: one layer retries. Where an SDK above says that it does, the
// Transport makes single attempts; where its retries are off, or it has not said yet, the
// Transport retries as ever.
func TestRetriesOfAnSDK(t *testing.T) {
	for _, row := range []struct {
		name   string
		header string
		value  string
		owns   bool
	}{
		{"AWS", "Amz-Sdk-Request", "attempt=1; max=3", true},
		{"AWS, a repeat", "Amz-Sdk-Request", "attempt=2; max=3", true},
		{"AWS, with a time to live", "Amz-Sdk-Request", "ttl=20261120T200000Z; attempt=1; max=3", true},
		{"AWS, retries off", "Amz-Sdk-Request", "attempt=1; max=1", false},
		{"AWS, no maximum yet", "Amz-Sdk-Request", "attempt=1", false},
		{"AWS, a repeat without a maximum", "Amz-Sdk-Request", "attempt=2", true},
		{"AWS, nonsense", "Amz-Sdk-Request", "max=; attempt=x; =3;;", false},
		{"AWS, absurd", "Amz-Sdk-Request", "max=99999999999999999999999", false},
		{"Stainless, first", "X-Stainless-Retry-Count", "0", false},
		{"Stainless, a repeat", "X-Stainless-Retry-Count", "1", true},
		{"Stainless, nonsense", "X-Stainless-Retry-Count", "many", false},
		{"Google, first", "X-Goog-Api-Client", "gl-go/1.26.0 gccl/1.50.0 gccl-invocation-id/9e2a7a54-6cf4-4d3c-8f0c-3a3a1bfb0f5b gccl-attempt-count/1", false},
		{"Google, a repeat", "X-Goog-Api-Client", "gl-go/1.26.0 gccl-attempt-count/2", true},
		{"Google, no count", "X-Goog-Api-Client", "gl-go/1.26.0 gccl/1.50.0", false},
		{"nobody", "X-Other", "attempt=2; max=3", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script(status(503))
				req := get(t)
				req.Header.Set(row.header, row.value)
				resp, err := (&resilienthttp.Transport{Base: base}).RoundTrip(req)
				require.NoError(t, err)
				readAll(t, resp)
				if row.owns {
					require.Len(t, base.calls(), 1)
					require.Equal(t, resilienthttp.ErrSingleAttempt, lastOf(t, resp).Stop)
				} else {
					require.Len(t, base.calls(), 4)
				}
			})
		})
	}
}

// TestKeyOfAnInvocation is §4.8 under an SDK: its attempts bear one key, another
// invocation's another one, as do two requests of one.
func TestKeyOfAnInvocation(t *testing.T) {
	const first, second = "9e2a7a54-6cf4-4d3c-8f0c-3a3a1bfb0f5b", "1b4db7eb-4057-4ddf-91e0-36dec72071f5"
	type sdk struct{ header, before string }
	aws, google := sdk{"Amz-Sdk-Invocation-Id", ""}, sdk{"X-Goog-Api-Client", "gl-go/1.26.0 gccl-attempt-count/1 gccl-invocation-id/"}
	key := func(t *testing.T, from sdk, id, url, body string, more ...string) string {
		t.Helper()
		base := script(status(200))
		req := newRequest(t, http.MethodPost, url, body)
		req.Header.Set(from.header, from.before+id)
		for i := 0; i+1 < len(more); i += 2 {
			req.Header.Set(more[i], more[i+1])
		}
		before := stateOf(req)
		resp, err := (&resilienthttp.Transport{Base: base}).RoundTrip(req)
		require.NoError(t, err)
		readAll(t, resp)
		before.requireUnchanged(t)
		sent := base.calls()[0].Header.Get("Idempotency-Key")
		require.NotEmpty(t, sent)
		return sent
	}
	const url = "http://api.test/things"
	for name, from := range map[string]sdk{"AWS": aws, "Google": google} {
		t.Run(name, func(t *testing.T) {
			one := key(t, from, first, url, "{}")
			require.NoError(t, uuid.Validate(one))
			require.NotContains(t, one, first)
			require.Equal(t, one, key(t, from, first, url, "{}", "Amz-Sdk-Request", "attempt=2; max=3"), "the SDK's next attempt")
			require.NotEqual(t, one, key(t, from, second, url, "{}"), "another invocation")
			require.NotEqual(t, one, key(t, from, first, url+"/2", "{}"), "another request of it")
			require.NotEqual(t, one, key(t, from, first, url, "{} "), "and another")
			require.Equal(t, "mine", key(t, from, first, url, "{}", "Idempotency-Key", "mine"))
			for _, bad := range []string{"1", "00000000-0000-0000-0000-000000000001", first[1:], "6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
				one := key(t, from, bad, url, "{}")
				require.NotEqual(t, one, key(t, from, bad, url, "{}"), "not random enough: %s", bad)
			}
		})
	}
}
