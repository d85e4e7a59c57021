//go:build !race

package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A17: beside a pool of invented keys that come in turn, a key that sends at most a fifth of the
// capacity is served at least as without Key.
func TestShedder_poolOfInventedKeys(t *testing.T) {
	for _, row := range []struct{ load, good float64 }{{1.2, 0.2}, {2, 0.02}, {2, 0.2}, {5, 0.1}} {
		// served returns the ratio of the good key's requests that is served.
		served := func(keys int) float64 {
			s := loaded(12, 10*ms, row.load, exponentially(10*ms), 20*time.Second)
			s.keyless = keys == 0
			next := 0
			s.request = func(r *rand.Rand) (string, int) {
				if r.Float64() < row.good/row.load {
					return "good", 1
				}
				next++
				return fmt.Sprint(next % max(keys, 1)), 1
			}
			came, ok := 0.0, 0.0
			for _, o := range s.run().outcomes {
				if o.key == "good" && o.came >= 5*time.Second { // when the key is known
					came++
					if o.ok {
						ok++
					}
				}
			}
			return ok / came
		}
		without := served(0)
		for _, keys := range []int{5, 20, 200, 2000, 100_000} {
			t.Run(fmt.Sprintf("%v of the capacity, of which good %v, %d keys", row.load, row.good, keys), func(t *testing.T) {
				with := served(keys)
				t.Logf("%.3f, without Key %.3f", with, without)
				assert.GreaterOrEqual(t, with, without-0.01)
			})
		}
	}
}

// A17: a key is known after it was admitted in several different seconds, however often.
func TestKnownKeys(t *testing.T) {
	var k knownKeys
	k.init()
	mark := k.mark("good")
	for range knownSeconds {
		assert.False(t, k.has(mark))
		k.second++
		for range 100 {
			k.add(mark)
		}
	}
	assert.True(t, k.has(mark))
	for range 30 {
		k.second++
		k.add(mark)
	}
	k.second++
	for n := range 2 * knownBuckets { // two other keys for each bucket
		k.add(k.mark(fmt.Sprint(n)))
	}
	assert.True(t, k.has(mark), "keys that were admitted once do not push it out")
	assert.False(t, k.has(k.mark("1")))
}
