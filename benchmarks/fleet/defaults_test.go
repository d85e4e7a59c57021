package fleet

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// documented are the fields with their documented defaults, in the unit of the field.
func documented() map[string]any {
	return map[string]any{
		"Budget.Ratio":         0.1,
		"Budget.Burst":         5,
		"Breaker.FailureRatio": 0.9,
		"Breaker.MinRequests":  20,
		"Breaker.Window":       10 * time.Second,
		"Breaker.Cooldown":     100 * time.Millisecond,
		"Breaker.MaxCooldown":  2 * time.Second,
		"Breaker.Probes":       3,
		"RateLimit.MaxWait":    time.Minute,
		"RateLimit.MaxBlock":   time.Hour,
		"Policy.MaxAttempts":   6,
		"Policy.MaxRetryAfter": time.Minute,
		"Hedge.Quantile":       0.95,
		"Hedge.MaxRatio":       0.05,
	}
}

// undocumented are fields without a numeric default.
func undocumented() []string {
	return []string{
		"Budget.Static", "Breaker.Static", "Breaker.OnChange", "Breaker.MaxWait",
		"RateLimit.Limit", "RateLimit.Burst", "RateLimit.MaxInFlight", "RateLimit.IgnoreHeaders", "RateLimit.Key", "RateLimit.Cost", "RateLimit.Shared",
		"Policy.AttemptTimeout", "Policy.ReadTimeout", "Policy.Backoff", "Policy.Classify", "Policy.ClassifyBody",
		"Policy.Idempotent", "Policy.Stream",
		"Hedge.Delay",
	}
}

// written returns a Transport's configuration with the field set to a multiple of its
// default.
func written(field string, value any, times float64) func(*resilienthttp.Transport) {
	return func(t *resilienthttp.Transport) {
		t.Budget, t.Breaker, t.RateLimit = &resilienthttp.Budget{}, &resilienthttp.Breaker{}, &resilienthttp.RateLimit{}
		kind, name, _ := strings.Cut(field, ".")
		f := reflect.ValueOf(t).Elem().FieldByName(kind)
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				f.Set(reflect.New(f.Type().Elem()))
			}
			f = f.Elem()
		}
		f = f.FieldByName(name)
		switch v := value.(type) {
		case float64:
			f.SetFloat(v * times)
		case int:
			f.SetInt(int64(math.Round(float64(v) * times)))
		case time.Duration:
			f.SetInt(int64(float64(v) * times))
		}
	}
}

// small are shorter outages and brownouts with a tenth of the calls.
func small() []Scenario {
	load := Load{Rate: 100, Clients: 100}
	return []Scenario{{
		Name: "outage", Before: 2 * time.Second, During: 10 * time.Second, After: 5 * time.Second, Load: load,
		Server: Server{Workers: 2, Service: 16 * time.Millisecond, Queue: 100, Faults: []Fault{{Response: Response{Status: 503}}}},
	}, {
		Name: "brownout", Before: 2 * time.Second, During: 10 * time.Second, After: 6 * time.Second, Load: load,
		Server: Server{Workers: 2, Service: 16 * time.Millisecond, Queue: 100, Staff: []Staff{{Workers: 1}}},
	}}
}

// figures are the compared results.
func figures(r Result) map[string]float64 {
	return map[string]float64{"success": r.Success(), "attempts per call": r.AttemptsPerCall(), "worst second": r.WorstDuring}
}

// noise is the permitted distance of a figure from the mean of the zero value.
type noise struct{ sum, squares, n float64 }

func (n *noise) add(v float64) { n.sum, n.squares, n.n = n.sum+v, n.squares+v*v, n.n+1 }

func (n *noise) mean() float64 { return n.sum / n.n }

func (n *noise) allows() float64 {
	deviation := math.Sqrt(max(n.squares/n.n-n.mean()*n.mean(), 0))
	return 5*deviation + 0.08
}

func median(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// §4.23: a documented default, set explicitly, has the same results as the zero value in an outage
// and a brownout. A value near it changes them only by chance.
func TestDefaults_explicitValuesEqualZeroValues(t *testing.T) {
	t.Parallel()
	type place struct {
		scenario Scenario
		topology Topology
		peer     string
	}
	var places []place
	for i, s := range small() { // each scenario with one topology, and each topology with one scenario
		topology := []Topology{Shared, Own}[i%2]
		for _, peer := range []string{peers.Ours, peers.OursHedged} {
			places = append(places, place{s, topology, peer})
		}
	}
	run := func(t *testing.T, p place, configure func(*resilienthttp.Transport)) Result {
		t.Helper()
		s := p.scenario
		s.Configure = configure
		return Run(t, configOf(t, s, p.peer, p.topology))
	}
	for _, p := range places {
		t.Run(fmt.Sprintf("%s, %s, %s", p.scenario.Name, p.topology, p.peer), func(t *testing.T) {
			t.Parallel()
			zero := map[string]*noise{}
			for range 6 {
				for name, v := range figures(run(t, p, nil)) {
					if zero[name] == nil {
						zero[name] = &noise{}
					}
					zero[name].add(v)
				}
			}
			for field, value := range documented() {
				if strings.HasPrefix(field, "Hedge.") != (p.peer == peers.OursHedged) {
					continue
				}
				for _, times := range []float64{1, 0.95, 1.05} {
					if _, whole := value.(int); whole && times != 1 && value != 20 {
						continue // one more or less is more than 5 %
					}
					again := func() map[string]float64 { return figures(run(t, p, written(field, value, times))) }
					for name, v := range again() {
						if math.Abs(v-zero[name].mean()) > zero[name].allows() {
							// One of hundreds of figures may be an outlier, but not twice.
							v = median(v, again()[name], again()[name])
						}
						require.InDelta(t, zero[name].mean(), v, zero[name].allows(), "%s: %s = %v × %g", name, field, value, times)
					}
				}
			}
		})
	}
}

// Every field is in one of the two lists.
func TestDefaults_listAllFields(t *testing.T) {
	known := map[string]bool{}
	for field := range documented() {
		known[field] = true
	}
	for _, field := range undocumented() {
		known[field] = true
	}
	for _, kind := range []reflect.Type{
		reflect.TypeFor[resilienthttp.Budget](), reflect.TypeFor[resilienthttp.Breaker](), reflect.TypeFor[resilienthttp.RateLimit](),
		reflect.TypeFor[resilienthttp.Policy](), reflect.TypeFor[resilienthttp.Hedge](),
	} {
		for f := range kind.Fields() {
			if f.IsExported() {
				require.True(t, known[kind.Name()+"."+f.Name], "%s.%s", kind.Name(), f.Name)
			}
		}
	}
}
