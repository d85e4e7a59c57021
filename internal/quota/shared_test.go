package quota

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// sharedStore is a store that counts its calls and can fail.
type sharedStore struct {
	memory atomic.Pointer[quotastore.Memory]

	delay atomic.Int64 // delay of a response
	fails atomic.Bool
	panic atomic.Bool

	trips, closes atomic.Int64
}

// process is the store as one process sees it.
type process struct {
	*sharedStore

	tb    testing.TB
	early atomic.Int64 // calls before storeInterval has passed
	dead  atomic.Bool  // the process has been killed

	mu   sync.Mutex
	last map[string]time.Time // the time of the last call for each quota
}

// storeInterval is the shortest time between two store calls.
const storeInterval = 100 * time.Millisecond

var errStore = errors.New("the store is down")

func (p *process) trip(ctx context.Context, key string) error {
	for _, side := range []string{"|rule", "|holders"} {
		key = strings.TrimSuffix(key, side)
	}
	p.mu.Lock()
	now := time.Now()
	if last, ok := p.last[key]; ok && now.Sub(last) < storeInterval {
		p.early.Add(1)
	}
	p.last[key] = now
	p.mu.Unlock()
	p.trips.Add(1)
	if delay := time.Duration(p.delay.Load()); delay > 0 {
		if err := sleep.Context(ctx, delay); err != nil {
			return err
		}
	}
	if p.panic.Load() {
		panic("store")
	}
	if p.fails.Load() || p.dead.Load() {
		return errStore
	}
	return nil
}

func (p *process) Take(ctx context.Context, key string, want, least int, r quotastore.Rule) (quotastore.Result, error) {
	if err := p.trip(ctx, key); err != nil {
		return quotastore.Result{}, err
	}
	t, err := p.memory.Load().Take(ctx, key, want, least, r)
	assert.NoError(p.tb, err, "%s %d %d %+v", key, want, least, r)
	return t, err
}

func (p *process) Block(ctx context.Context, key string, until time.Time) error {
	if err := p.trip(ctx, key); err != nil {
		return err
	}
	p.closes.Add(1)
	return p.memory.Load().Block(ctx, key, until)
}

// forget removes all data of the store.
func (s *sharedStore) forget() { s.memory.Store(new(quotastore.Memory)) }

// fleet is a number of processes that share a store and a server.
type fleet struct {
	store  *sharedStore
	server *quotaServer
	all    []*member
}

type member struct {
	*Limiter

	store   *process
	stop    context.CancelFunc
	over    sync.WaitGroup
	sent    atomic.Int64
	refused atomic.Int64
}

func newFleet(tb testing.TB, server *quotaServer, processes int, c Config) *fleet {
	tb.Helper()
	f := &fleet{store: new(sharedStore), server: server}
	f.store.forget()
	for range processes {
		f.add(tb, c)
	}
	return f
}

func (f *fleet) add(tb testing.TB, c Config) *member {
	tb.Helper()
	m := &member{store: &process{sharedStore: f.store, tb: tb, last: map[string]time.Time{}}}
	c.Shared = m.store
	m.Limiter = with(c)
	f.all = append(f.all, m)
	return m
}

// run lets a process send as many requests as possible, with workers that pause between two
// requests.
func (f *fleet) run(m *member, workers int, pause time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	c := client(direct{handler: f.server, up: 2 * time.Millisecond, down: 2 * time.Millisecond, jitter: true}, m.Limiter)
	for range workers {
		m.over.Go(func() {
			for ctx.Err() == nil {
				if status, refused := get(ctx, c, "http://mem.test/"); refused == nil {
					m.sent.Add(1)
					if status == http.StatusTooManyRequests {
						m.refused.Add(1)
					}
				}
				_ = sleep.Context(ctx, pause)
			}
		})
	}
}

// kill ends a process without returning its tokens.
func (f *fleet) kill(m *member) {
	m.store.dead.Store(true)
	m.stop()
	m.over.Wait()
}

// counts returns the numbers of served and rejected requests since the last call.
func (f *fleet) counts() (served, refused int) {
	for _, m := range f.all {
		r := m.refused.Swap(0)
		served, refused = served+int(m.sent.Swap(0)-r), refused+int(r)
	}
	return served, refused
}

func (f *fleet) stop() {
	for _, m := range f.all {
		if m.stop != nil {
			m.stop()
		}
	}
	for _, m := range f.all {
		m.over.Wait()
	}
	time.Sleep(time.Minute) // until all goroutines have ended
}

// A11: many processes on one quota that the server shows: no 429, and nearly all of it is used.
// No process calls the store more than once in 100 ms, or without requests.
func TestSharedQuota(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, row := range []struct {
		kind      quotaKind
		limit     int
		window    time.Duration
		dialect   string
		processes int
		busy      int
		workers   int
		pause     time.Duration
		least     float64
	}{
		{aligned, 400, 10 * s, "github", 8, 8, 20, ms, 0.95},
		{aligned, 600, 60 * s, "ietf", 8, 8, 5, ms, 0.95},
		{aligned, 400, 10 * s, "openai", 8, 2, 50, ms, 0.95},
		{aligned, 200, 10 * s, "ietf", 3, 3, 5, 20 * ms, 0.95},
		{fromFirst, 400, 10 * s, "epoch ms", 4, 4, 20, ms, 0.9}, // one time in a hundred a window begins late, and .925 is used
		{tokenBucket, 400, 10 * s, "openai", 4, 4, 20, ms, 0.95},
		{tokenBucket, 600, 60 * s, "ietf", 4, 4, 20, ms, 0.95},
		{aligned, 50, s, "openai", 4, 4, 5, ms, 0.8},
	} {
		bubble.Run(t, fmt.Sprintf("%s %d in %v, %s, %d of %d busy", row.kind, row.limit, row.window, row.dialect, row.busy, row.processes), func(t *testing.T) {
			in2026(234 * ms)
			server := &quotaServer{kind: row.kind, limit: row.limit, window: row.window, dialect: row.dialect}
			f := newFleet(t, server, row.processes, Config{MaxWait: time.Hour})
			for i, m := range f.all {
				workers, pause := row.workers, row.pause
				if i >= row.busy {
					workers, pause = 1, 700*ms
				}
				f.run(m, workers, pause)
				time.Sleep(7 * ms)
			}
			time.Sleep(2 * row.window)
			server.measure()
			began := f.store.trips.Load()
			length := min(40*row.window, max(10*row.window, 400*s)) // one burst more or less is a window
			time.Sleep(length)
			used, _ := server.share()
			trips := f.store.trips.Load() - began
			f.stop()
			server.mu.Lock()
			refused := server.refused
			server.mu.Unlock()
			t.Logf("used %.3f, %d refused, %.1f trips a second and process", used, refused, float64(trips)/length.Seconds()/float64(row.processes))
			assert.Zero(t, refused, "429s")
			assert.GreaterOrEqual(t, used, row.least)
			rest := f.store.trips.Load()
			time.Sleep(time.Hour)
			assert.Equal(t, rest, f.store.trips.Load(), "trips at rest")
			for i, m := range f.all {
				assert.Zero(t, m.store.early.Load(), "trips of process %d within 100 ms", i)
			}
		})
	}
}

const tenSeconds = 400 // requests

func inTenSeconds() *quotaServer {
	return &quotaServer{kind: aligned, limit: tenSeconds, window: 10 * time.Second, dialect: "openai"}
}

func newBusyFleet(t *testing.T, processes int) *fleet {
	t.Helper()
	return newBusyFleetAt(t, inTenSeconds(), processes)
}

func newBusyFleetAt(t *testing.T, server *quotaServer, processes int) *fleet {
	t.Helper()
	in2026(234 * time.Millisecond)
	f := newFleet(t, server, processes, Config{MaxWait: time.Hour})
	for _, m := range f.all {
		f.run(m, 20, time.Millisecond)
		time.Sleep(3 * time.Millisecond)
	}
	time.Sleep(20 * time.Second)
	return f
}

// A11: processes are killed and started at any time: no 429, and the tokens of a killed process
// are lost for one window only.
func TestSharedQuota_killedProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBusyFleet(t, 8)
		f.counts()
		const rounds = 40
		for n := range rounds {
			time.Sleep(time.Duration(3+n%9) * 797 * time.Millisecond)
			f.kill(f.all[n])
			f.run(f.add(t, Config{MaxWait: time.Hour}), 20, time.Millisecond)
		}
		served, refused := f.counts()
		length := float64(0)
		for n := range rounds {
			length += float64(3+n%9) * 0.797
		}
		t.Logf("used %.3f, %d refused", float64(served)/length/(tenSeconds/10), refused)
		assert.Zero(t, refused)
		assert.GreaterOrEqual(t, float64(served)/length/(tenSeconds/10), 0.95)
		time.Sleep(30 * time.Second) // without kills
		f.counts()
		time.Sleep(200 * time.Second)
		served, refused = f.counts()
		assert.Zero(t, refused)
		assert.GreaterOrEqual(t, served, tenSeconds*20*96/100)
		f.stop()
	})
}

// A11: processes are killed and started while the store is down. They learn the quota from a part
// of a window, and do not know the number of processes. While the store is up, no call is
// rejected, and earlier usage counts.
func TestSharedQuota_processesStartWithoutStore(t *testing.T) {
	for _, dialect := range []string{"epoch ms", "delta", "openai", "ietf"} {
		bubble.Run(t, dialect, func(t *testing.T) {
			f := newBusyFleetAt(t, &quotaServer{kind: aligned, limit: 1000, window: 10 * time.Second, dialect: dialect}, 8)
			replace := func(n int) {
				f.kill(f.all[n])
				f.run(f.add(t, Config{MaxWait: time.Hour}), 20, time.Millisecond)
			}
			f.counts()
			began, served := time.Now(), 0
			for n := range 40 {
				time.Sleep(time.Duration(3+n%9) * 597 * time.Millisecond)
				s, refused := f.counts()
				assert.Zero(t, refused, "%v after the beginning", time.Since(began))
				down := n%5 == 4
				f.store.fails.Store(down)
				replace(n)
				if down {
					time.Sleep(time.Duration(n%7) * 403 * time.Millisecond)
					f.store.fails.Store(false)
					time.Sleep(200 * time.Millisecond) // until all have reported
					more, _ := f.counts()
					s += more
				}
				served += s
			}
			used := float64(served) / time.Since(began).Seconds() / 100
			t.Logf("used %.3f", used)
			assert.GreaterOrEqual(t, used, 0.93)
			f.stop()
		})
	}
}

// A new process learns from its first response which bucket its requests are in. Calls that wait
// for this response then queue for that bucket.
func TestSharedQuota_namedBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBusyFleetAt(t, &quotaServer{kind: aligned, limit: tenSeconds, window: 10 * time.Second, dialect: "github"}, 4)
		f.counts()
		for n := range 12 {
			time.Sleep(time.Duration(3+n%9) * 797 * time.Millisecond)
			f.kill(f.all[n])
			f.run(f.add(t, Config{MaxWait: time.Hour}), 20, time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		_, refused := f.counts()
		t.Logf("%d refused", refused)
		assert.LessOrEqual(t, refused, 2*len(f.all), "of 20 workers each")
		f.stop()
	})
}

// A11: the store is down, slow, silent or broken: each process uses its share, and the store
// delays no call. When it is back, there is no 429.
func TestSharedQuota_withoutStore(t *testing.T) {
	for name, trouble := range map[string]func(s *sharedStore, on bool){
		"down":      func(s *sharedStore, on bool) { s.fails.Store(on) },
		"panicking": func(s *sharedStore, on bool) { s.panic.Store(on) },
		"slow":      func(s *sharedStore, on bool) { s.slow(on, 30*time.Millisecond) },
		"slower":    func(s *sharedStore, on bool) { s.slow(on, 700*time.Millisecond) },
		"deaf":      func(s *sharedStore, on bool) { s.slow(on, time.Hour) },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			in2026(234 * time.Millisecond)
			f := newFleet(t, inTenSeconds(), 4, Config{MaxWait: time.Hour})
			for _, m := range f.all {
				f.run(m, 5, 80*time.Millisecond) // 60 a second: less than a quarter of it for all
			}
			time.Sleep(15 * time.Second)
			trouble(f.store, true)
			time.Sleep(8 * time.Second) // the next window has begun
			before := make([]int64, len(f.all))
			for i, m := range f.all {
				before[i] = m.sent.Load()
			}
			time.Sleep(20 * time.Second)
			for i, m := range f.all {
				got := m.sent.Load() - before[i]
				assert.InDelta(t, tenSeconds*2/4, got, tenSeconds*2/4*0.15, "process %d has its share, and no more", i)
			}
			trouble(f.store, false)
			time.Sleep(2 * time.Second)
			_, _ = f.counts()
			time.Sleep(12 * time.Second)
			_, refused := f.counts()
			assert.Zero(t, refused)
			time.Sleep(300 * time.Second)
			served, refused := f.counts()
			assert.LessOrEqual(t, refused, len(f.all), "in one of 25 runs one window has 1 to 3, of 30 windows")
			assert.GreaterOrEqual(t, served, tenSeconds*30*95/100)
			f.stop()
		})
	}
}

func (s *sharedStore) slow(on bool, delay time.Duration) {
	if !on {
		delay = 0
	}
	s.delay.Store(int64(delay))
}

// A11: if the store was never up, no call waits longer than 20 ms, except the first.
func TestSharedQuota_storeWasNeverUp(t *testing.T) {
	for _, ceiling := range []rate.Limit{0, 50} {
		for _, deaf := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				in2026(0)
				f := newFleet(t, inTenSeconds(), 1, Config{Limit: ceiling, MaxWait: time.Hour})
				f.store.fails.Store(!deaf)
				f.store.slow(deaf, time.Hour)
				c := client(direct{handler: f.server, up: time.Millisecond, down: time.Millisecond}, f.all[0].Limiter)
				for n := range 50 {
					patience := 22*time.Millisecond + time.Microsecond
					if n == 0 {
						patience += 250 * time.Millisecond
					}
					began := time.Now()
					status, refused := get(t.Context(), c, "http://mem.test/")
					assert.Nil(t, refused)
					assert.Equal(t, 200, status)
					assert.LessOrEqual(t, time.Since(began), patience)
					time.Sleep(25 * time.Millisecond)
				}
				f.stop()
			})
		}
	}
}

// A11: other clients use the quota, or the store has lost its data. A lower remaining count of
// the server is used until the end of the window, and a rejection that proves the exhaustion is
// written for all processes.
func TestSharedQuota_otherClients(t *testing.T) {
	bubble.Run(t, "others", func(t *testing.T) {
		f := newBusyFleet(t, 4)
		var served, refused int
		for range 20 {
			f.counts()
			for range tenSeconds / 2 { // another client, at the beginning of a window
				f.server.count(time.Now())
			}
			time.Sleep(10 * time.Second)
			s, r := f.counts()
			served, refused = served+s, refused+r
		}
		t.Logf("served %d, refused %d", served, refused)
		assert.LessOrEqual(t, refused, 20*60, "of 80 workers not all are refused each time")
		assert.GreaterOrEqual(t, served, 20*tenSeconds*85/100)
		time.Sleep(20 * time.Second) // alone again
		f.counts()
		time.Sleep(200 * time.Second)
		served, refused = f.counts()
		assert.Zero(t, refused)
		assert.GreaterOrEqual(t, served, 20*tenSeconds*95/100, "the quota is used again")
		f.stop()
	})
	bubble.Run(t, "a store that forgets", func(t *testing.T) {
		f := newBusyFleet(t, 4)
		f.counts()
		for range 20 {
			time.Sleep(9 * time.Second)
			f.store.forget()
		}
		served, refused := f.counts()
		t.Logf("served %d, refused %d", served, refused)
		assert.LessOrEqual(t, refused, 20*60)
		assert.GreaterOrEqual(t, served, 18*tenSeconds*80/100)
		f.stop()
	})
	bubble.Run(t, "a refusal", func(t *testing.T) {
		in2026(3234 * time.Millisecond) // a window has just begun
		f := newFleet(t, inTenSeconds(), 2, Config{MaxWait: time.Hour})
		one := client(direct{handler: f.server, up: time.Millisecond, down: time.Millisecond}, f.all[0].Limiter)
		two := client(direct{handler: f.server, up: time.Millisecond, down: time.Millisecond}, f.all[1].Limiter)
		status, _ := get(t.Context(), one, "http://mem.test/")
		require.Equal(t, 200, status)
		time.Sleep(time.Second)
		for range tenSeconds - 1 {
			f.server.count(time.Now())
		}
		status, _ = get(t.Context(), one, "http://mem.test/")
		require.Equal(t, 429, status)
		time.Sleep(300 * time.Millisecond)
		require.EqualValues(t, 1, f.store.closes.Load())
		began := time.Now()
		status, _ = get(t.Context(), two, "http://mem.test/")
		require.Equal(t, 200, status)
		require.Greater(t, time.Since(began), 7*time.Second, "it knew, and waited")
		require.Equal(t, 1, f.server.refused)
		f.stop()
	})
}

// If the server shows no quota, there is nothing to share. Until this is known, one request is
// sent alone.
func TestSharedQuota_notShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in2026(0)
		f := newFleet(t, inTenSeconds(), 1, Config{MaxWait: time.Hour})
		f.server.curt, f.server.limit = true, 1<<20
		f.run(f.all[0], 10, time.Millisecond)
		time.Sleep(5 * time.Second)
		served, refused := f.counts()
		require.Zero(t, refused)
		require.Greater(t, served, 900, "no call waits")
		require.LessOrEqual(t, f.store.trips.Load(), int64(1))
		f.stop()
	})
}
