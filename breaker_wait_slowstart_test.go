package resilienthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// 2b. Slow start releases the call that began first: it has no time left, so no response comes in time, and the limit does
// not grow. The server is healthy, and no call succeeds.
func TestAttack_slowStartHasNoTime(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 6 * time.Second, 10 * time.Second} {
		for _, takes := range []time.Duration{20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond} {
			t.Run(fmt.Sprint(away, ", ", takes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					const from = 10 * time.Second
					back := from + away
					var mu sync.Mutex
					tr := &resilienthttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
						switch at := time.Since(begun); {
						case at < from:
							return after(20*time.Millisecond, status(200))(r)
						case at < back:
							return hanging(r)
						}
						return after(takes, status(200))(r)
					})}
					var calls sync.WaitGroup
					ok, of := map[int]int{}, map[int]int{}
					for time.Since(begun) < back+40*time.Second {
						at := time.Since(begun)
						calls.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							defer cancel()
							resp, err := tr.RoundTrip(get(t).WithContext(ctx))
							mu.Lock()
							defer mu.Unlock()
							of[int(at/time.Second)]++
							if err == nil {
								if resp.StatusCode == http.StatusOK {
									ok[int(at/time.Second)]++
								}
								_ = resp.Body.Close()
							}
						})
						time.Sleep(5 * time.Millisecond) // 200 a second
					}
					calls.Wait()
					var text strings.Builder
					for i := int(back / time.Second); i < int(back/time.Second)+40; i++ {
						fmt.Fprintf(&text, "%d ", ok[i])
					}
					t.Log("successes of 200 in each second since the server is back:", text.String())
					first := int(back/time.Second) + 5
					require.Greater(t, ok[first], of[first]*9/10, "calls that begin five seconds after the server is back")
				})
			})
		}
	}
}
