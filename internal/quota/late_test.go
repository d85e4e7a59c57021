package quota

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.17: a report that is late, because Classify took long or the process was frozen, is no clock that goes
// back: what is known stays.
func TestBucket_lateReport(t *testing.T) {
	for _, late := range []time.Duration{50 * time.Second, 70 * time.Second, 10 * time.Minute} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := with(Config{})
				require.Nil(t, respond(t, l, "/", http.StatusOK, quotaHeader(10, 2, 3000)...))
				slow := newExchange(t.Context(), l)
				require.Nil(t, slow.enter())
				exhausted := append([]string{"Retry-After", "3000"}, quotaHeader(10, 0, 3000)...)
				require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, exhausted...))
				require.NotNil(t, respond(t, l, "/", http.StatusOK))
				read := time.Now()
				time.Sleep(late)
				require.Nil(t, respond(t, l, "/", http.StatusTooManyRequests, exhausted...), "a probe")
				slow.Done(answerOf(http.StatusNotFound, http.Header{}, read), read)
				require.NotNil(t, respond(t, l, "/", http.StatusOK), "the quota is still exhausted")
			})
		})
	}
}

// A server of the IETF draft shows a quota for each resource and one for the user, each with a partition
// key. An exhausted resource stops no other, whatever their order is.
func TestRoutes_partitionKeys(t *testing.T) {
	for name, form := range map[string]string{"user last": "%[1]s, %[2]s", "user first": "%[2]s, %[1]s"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := map[string]int{"reports": 3, "orders": 1000}
				base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					time.Sleep(20 * time.Millisecond)
					resource := strings.TrimPrefix(req.URL.Path, "/")
					status, header := http.StatusOK, http.Header{}
					if left[resource] == 0 {
						status = http.StatusTooManyRequests
						header.Set("Retry-After", "3000")
					} else {
						left[resource]--
					}
					of := fmt.Sprintf(`"resource";r=%d;t=3000;pk=:%s:`, left[resource], resource)
					header["Ratelimit"] = []string{fmt.Sprintf(form, of, `"user";r=90000;t=3000;pk=:user1:`)}
					return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}, nil
				})
				c := client(base, with(Config{}))
				served := 0
				for range 20 {
					if status, _ := get(t.Context(), c, "http://api.test/orders"); status == http.StatusOK {
						served++
					}
					_, _ = get(t.Context(), c, "http://api.test/reports")
				}
				require.Equal(t, 20, served)
			})
		})
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
