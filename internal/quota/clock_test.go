package quota

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A step of the local clock is not taken for a step of the server's. A step of the server's clock
// affects one window at most.
func TestQuotaClocks(t *testing.T) {
	var c serverClock
	start := time.Date(2026, 1, 1, 0, 0, 0, 300_000_000, time.UTC)
	observe := func(ahead, at time.Duration) {
		written := start.Add(at + ahead).Truncate(time.Second)
		c.observe(written, start.Add(at-20*time.Millisecond), start.Add(at+30*time.Millisecond))
	}
	for at := time.Duration(0); at < 3*time.Second; at += 50 * time.Millisecond {
		observe(time.Hour, at)
		assert.LessOrEqual(t, c.least, time.Hour)
		assert.GreaterOrEqual(t, c.most, time.Hour)
	}
	assert.Less(t, c.most-c.least, 150*time.Millisecond, "it is known quite well by now")
	observe(-time.Minute, 4*time.Second)
	assert.LessOrEqual(t, c.least, -time.Minute, "the server's clock was set back")
	assert.GreaterOrEqual(t, c.most, -time.Minute)
	observe(time.Minute, 5*time.Second)
	assert.LessOrEqual(t, c.least, time.Minute, "and forth")
	assert.GreaterOrEqual(t, c.most, time.Minute)

	// The result of time.Now after the local clock was set an hour ahead: the seconds of
	// its wall clock are the upper bits of its first word.
	l := with(Config{})
	b := &bucket{limiter: l}
	stepped := l.origin.Add(time.Second)
	*(*uint64)(unsafe.Pointer(&stepped)) += 3600 << 30
	require.Equal(t, l.origin.Round(0).Add(time.Hour+time.Second), stepped.Round(0))
	require.Equal(t, time.Second, stepped.Sub(l.origin))
	assert.Equal(t, l.origin.Round(0).Add(time.Second), l.steady(stepped).Round(0))

	// The goroutine that read the clock first may get the lock last.
	assert.Equal(t, b.tick(stepped), b.tick(l.origin))
}
