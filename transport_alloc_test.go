//go:build !race

package resilienthttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp"
)

// A successful call adds few allocations to those of a bare client. The race detector would add some.
func TestAllocations(t *testing.T) {
	type cost struct{ allocs, size float64 }
	added := map[string]cost{}
	for _, l := range loads {
		bare, bareSize := allocations(requester(l, &http.Client{Transport: instant{}}))
		ours, size := allocations(requester(l, &http.Client{Transport: &resilienthttp.Transport{Base: instant{}}}))
		added[l.name] = cost{ours - bare, size - bareSize}
		t.Logf("%-10s adds %5.1f allocations and %6.0f bytes", l.name, ours-bare, size-bareSize)
	}
	assert.LessOrEqual(t, added["GET"].allocs, 4.0, "allocations of a GET")
	assert.LessOrEqual(t, added["GET"].size, 1.6*1024, "bytes of a GET")
	assert.LessOrEqual(t, added["POST-64B"].allocs, 9.0, "allocations of a POST with a generated key")
	assert.LessOrEqual(t, added["POST-1MiB"].size, added["POST-64B"].size+128, "bytes of a large POST: the body is not copied")
}

// A response that is no stream pays nothing for Policy.Stream, and a request nothing for Policy.Idempotent.
func TestAllocations_noStream(t *testing.T) {
	policy := streamPolicy()
	for _, l := range loads {
		without, size := allocations(requester(l, &http.Client{Transport: &resilienthttp.Transport{Base: instant{}}}))
		with, sizeWith := allocations(requester(l, &http.Client{Transport: &resilienthttp.Transport{Base: instant{}, Policy: policy}}))
		assert.InDelta(t, without, with, 0.1, l.name)
		assert.InDelta(t, size, sizeWith, 64, l.name)
	}
}
