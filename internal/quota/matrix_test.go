//go:build quotamatrix

package quota

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuotaMatrix prints a table of all combinations, more than a CI run needs:
//
//	QUOTA_MATRIX=0 go test -tags quotamatrix -run TestQuotaMatrix -v .
//
// The number, 0 if there is none, rotates the dialects and clocks through the rows.
func TestQuotaMatrix(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("QUOTA_MATRIX"))
	const s, ms = time.Second, time.Millisecond
	skews := []time.Duration{0, -time.Hour, time.Hour, 700 * ms}
	offsets := []time.Duration{0, 123 * ms, 500 * ms, 951 * ms}
	dialects := quotaDialects()
	dialects = dialects[:len(dialects)-1]
	for _, kind := range []quotaKind{aligned, fromFirst, tokenBucket} {
		for _, window := range []time.Duration{s, 10 * s, 60 * s} {
			for _, limit := range []int{5, 60, 100, 1000} {
				for _, latency := range []time.Duration{0, 5 * ms, 50 * ms, window + window/2} {
					for _, open := range []bool{false, true} {
						if limit == 1000 && latency > window && window > s {
							continue // half a million goroutines
						}
						r := quotaRun{
							kind: kind, window: window, limit: limit, latency: latency, open: open, direct: true,
							dialect: dialects[(n*5+n/7)%len(dialects)].name, skew: skews[n/2%4], offset: offsets[(n*3+n/5)%4],
						}
						n++
						synctest.Test(t, func(t *testing.T) {
							got := r.run(t)
							t.Logf("used %.3f believed %.3f 429s %4d served %5d rejected at once %5d, after a wait %4d: %v",
								got.used, got.believed, got.refused, got.served, got.atOnce, got.afterWait, r)
						})
					}
				}
			}
		}
	}
}
