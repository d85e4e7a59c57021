package zoo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/limiter"
)

// tenWindows is a draw of one process and worker, in nine windows and a part of two others.
func tenWindows(change func(*Draw)) Draw {
	d := Draw{
		Limits: []limiter.Limit{{Name: "requests", Unit: limiter.Requests, Kind: limiter.FixedWindow, Quota: 100, Window: time.Minute}},
		Says:   SaysAll, Dialect: "github", Wait: WaitSeconds, Length: 9 * time.Minute,
		Load: Load{Kind: Workers, Workers: 1, Processes: 1, Paths: 1, Models: 1, Tokens: 1},
	}
	if change != nil {
		change(&d)
	}
	return d
}

func TestTrial_Judge(t *testing.T) {
	served := func(n int) Figures { return Figures{Served: n} }
	rejected := func(n int) Figures { return Figures{Served: 1000, Rejected: n} }
	nothing := func(d *Draw) { d.Says, d.Dialect, d.Wait = SaysNothing, "", WaitNone }
	rejections := func(d *Draw) { d.Says = SaysRejections }
	byPath := func(d *Draw) { nothing(d); d.Limits[0].Split, d.Load.Paths = limiter.ByPath, 2 }
	for _, row := range []struct {
		name               string
		change             func(*Draw)
		bare, oracle, ours Figures
		misses             []Criterion
	}{
		{"as bare and the oracle: holds", nil, served(1000), served(1000), served(1000), nil},
		{"0.95 × bare's - 2: holds", nothing, served(1000), served(5000), served(948), nil},
		{"one less: misses", nothing, served(1000), served(5000), served(947), []Criterion{AboveBare}},
		{"few calls, two fewer: holds", nothing, served(2), served(2), served(0), nil},
		{"workers and quotas of paths, as the oracle: holds", byPath, served(2000), served(1000), served(948), nil},
		{"one less: misses", byPath, served(2000), served(1000), served(947), []Criterion{AboveBare}},
		{"an open load and quotas of paths: bare counts", func(d *Draw) { byPath(d); d.Load.Kind = Open }, served(2000), served(1000), served(948), []Criterion{AboveBare}},
		{"0.95 × the oracle's - 2: holds", nil, served(500), served(1000), served(948), nil},
		{"one less: misses", nil, served(500), served(1000), served(947), []Criterion{NearOracle}},
		{"2 a window + 20: holds", nil, rejected(1000), rejected(0), rejected(40), nil},
		{"one more: misses", nil, rejected(1000), rejected(0), rejected(41), []Criterion{FewWhereAllTell}},
		{"a first flight of 30: holds", func(d *Draw) { d.Load.Workers = 30 }, rejected(1000), rejected(0), rejected(50), nil},
		{"one more: misses", func(d *Draw) { d.Load.Workers = 30 }, rejected(1000), rejected(0), rejected(51), []Criterion{FewWhereAllTell}},
		{"three processes: holds", func(d *Draw) { d.Load.Processes = 3 }, rejected(1000), rejected(0), rejected(80), nil},
		{"rejections tell, 4 a window and what is in flight: holds", rejections, rejected(1000), rejected(0), rejected(73), nil},
		{"one more: misses", rejections, rejected(1000), rejected(0), rejected(74), []Criterion{FewWhereRejectionsTell}},
		{"3.6 × bare's + 2: holds", nothing, rejected(10), rejected(0), rejected(38), nil},
		{"one more: misses", nothing, rejected(10), rejected(0), rejected(39), []Criterion{FewBesideBare}},
		{"nothing tells: as many as bare", nothing, rejected(5000), rejected(0), rejected(5000), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			trial := Trial{Draw: tenWindows(row.change), Bare: row.bare, Oracle: row.oracle, Ours: row.ours}
			var got []Criterion
			for _, m := range trial.Judge() {
				got = append(got, m.Criterion)
			}
			require.Equal(t, row.misses, got)
		})
	}
}

func TestDraw_applies(t *testing.T) {
	always := []Criterion{AboveBare, FewBesideBare}
	and := func(more ...Criterion) []Criterion { return append(more, always...) }
	second := func(secret bool) func(*Draw) {
		return func(d *Draw) {
			l := d.Limits[0]
			l.Secret = secret
			d.Limits = append(d.Limits, l)
		}
	}
	kind := func(k limiter.Kind) func(*Draw) {
		return func(d *Draw) { d.Limits[0].Kind, d.Limits[0].Burst = k, 100 }
	}
	with := func(changes ...func(*Draw)) func(*Draw) {
		return func(d *Draw) {
			for _, change := range changes {
				change(d)
			}
		}
	}
	noWait := func(d *Draw) { d.Wait = WaitNone }
	two := func(d *Draw) { d.Load.Processes = 2 }
	saying := func(s Says) func(*Draw) { return func(d *Draw) { d.Says = s } }
	for _, row := range []struct {
		name   string
		change func(*Draw)
		want   []Criterion
	}{
		{"all responses tell", nil, and(NearOracle, FewWhereAllTell)},
		{"all responses tell, partly from a cache", saying(SaysCached), and(NearOracle, FewWhereAllTell)},
		{"all responses tell, others compete for a window", with(saying(SaysShared), func(d *Draw) { d.Others = 0.2 }), and(NearOracle, FewWhereAllTell)},
		{"processes compete for a window", two, and(NearOracle, FewWhereAllTell)},
		{"processes compete for a bucket", with(kind(limiter.TokenBucket), two), and(NearOracle, FewWhereRejectionsTell)},
		{"a bucket", kind(limiter.TokenBucket), and(NearOracle, FewWhereAllTell)},
		{"a bucket of tokens", with(kind(limiter.TokenBucket), func(d *Draw) { d.Limits[0].Unit = limiter.Tokens }), and(NearOracle, FewWhereRejectionsTell)},
		{"requests at once", kind(limiter.Concurrency), always},
		{"quotas of models", func(d *Draw) { d.Limits[0].Split = limiter.ByModel }, always},
		{"quotas of paths", func(d *Draw) { d.Limits[0].Split = limiter.ByPath }, and(NearOracle, FewWhereAllTell)},
		{"a second limit that is secret", second(true), and(FewWhereRejectionsTell)},
		{"the same without Retry-After", with(second(true), noWait), always},
		{"two limits in a dialect of one", with(second(false), noWait), always},
		{"two limits in a dialect of many", with(second(false), noWait, func(d *Draw) { d.Dialect = "ietf" }), and(NearOracle, FewWhereAllTell)},
		{"a reset in seconds, a window of nine", func(d *Draw) { d.Limits[0].Window = 9 * time.Second }, and(FewWhereAllTell)},
		{"the server fails otherwise", func(d *Draw) { d.Trouble.Errors = 0.1 }, and(FewWhereAllTell)},
		{"rejections tell", saying(SaysRejections), and(FewWhereRejectionsTell)},
		{"no reset, but Retry-After", saying(SaysNoReset), and(FewWhereRejectionsTell)},
		{"no reset and no Retry-After", with(saying(SaysNoReset), noWait), always},
		{"only Retry-After", saying(SaysWait), and(FewWhereRejectionsTell)},
		{"late", saying(SaysLate), always},
		{"wrong", saying(SaysWrong), always},
		{"nothing", saying(SaysNothing), always},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := tenWindows(row.change)
			var got []Criterion
			for _, c := range Criteria() {
				if d.applies(c) {
					got = append(got, c)
				}
			}
			require.ElementsMatch(t, row.want, got)
		})
	}
}

func TestSummary(t *testing.T) {
	trials := make([]Trial, 100)
	for i := range trials {
		trials[i] = Trial{Draw: tenWindows(nil), Oracle: Figures{Served: 1000}, Ours: Figures{Served: 1000}}
		if i < 3 {
			trials[i].Ours.Served = 500
		}
	}
	text := Summarize(trials)
	require.Contains(t, text, "served/oracle             3 of  100 missed (3.0 %)")
	require.Contains(t, text, "window × all × workers               of 100:  served/oracle 3")
}
