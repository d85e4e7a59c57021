package fleet

import (
	"fmt"
	"time"
)

// crowds are overloads: more calls than the capacity.
func crowds() []Scenario {
	const goodput = "goodput, of capacity"
	shedder := Server{Service: 40 * time.Millisecond, Queue: 24, RetryAfter: 1}
	all := each(func(times float64) Scenario {
		return Scenario{
			Row: 15, Name: fmt.Sprintf("shed-%g", times), During: 60 * time.Second,
			Note:   fmt.Sprintf("%g × the capacity; the server rejects the excess: 503 with Retry-After: 1", times),
			Server: shedder, Load: Load{Rate: times * shedder.capacity()},
			Shows:   goodput,
			Targets: []Target{atLeast(goodput, func(r Result) float64 { return r.CapacityUsed }, 0.95, "%.4f")},
		}
	}, 1.1, 1.5, 3)
	cold := Scenario{
		Row: 16, Name: "cold-start", Note: "a starting server: one more worker every 2.5 s", Reason: whyGrowing, During: 30 * time.Second, Topologies: []Topology{Shared},
		Targets: []Target{atLeast("success", Result.Success, 0.600, "%.4f")},
	}
	for i := range defaultWorkers {
		at := time.Duration(i) * 2500 * time.Millisecond
		cold.Server.Staff = append(cold.Server.Staff, Staff{From: at, To: at + 2500*time.Millisecond, Workers: i + 1})
	}
	return append(all, cold, Scenario{
		Row: 16, Name: "flash-crowd", Note: "three times the calls for 10 s", Topologies: []Topology{Shared},
		Before: 10 * time.Second, During: 10 * time.Second, After: 45 * time.Second,
		Load:    Load{Surges: []Surge{{From: 10 * time.Second, To: 20 * time.Second, Factor: 3}}},
		Targets: []Target{atLeast("success", Result.Success, 0.75, "%.4f")},
	})
}
