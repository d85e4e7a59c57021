package fleet

import (
	"fmt"
	"time"
)

// backends are servers behind one name; some of them fail.
func backends() []Scenario {
	type broken struct {
		n           int
		shared, own float64
	}
	fails := each(func(v broken) Scenario {
		return Scenario{
			Row: 5, Name: fmt.Sprintf("backends-fail-%d", v.n), Note: fmt.Sprintf("%d of 10 backends return 500", v.n), During: 120 * time.Second,
			Load:   fleetOf(100),
			Server: Server{Backends: 10, Faults: []Fault{{Backends: upTo(v.n), Response: Response{Status: 500}}}},
			Targets: []Target{
				atLeast("success", Result.Success, v.shared, "%.4f").shared(),
				atLeast("success", Result.Success, v.own, "%.4f").perClient(),
			},
		}
	}, broken{1, 0.999, 0.999}, broken{3, 0.98, 0.97})
	type hanging struct {
		n             int
		success, goal float64
	}
	hang := each(func(v hanging) Scenario {
		return Scenario{
			Row: 6, Name: fmt.Sprintf("backends-hang-%d", v.n), Note: fmt.Sprintf("%d of 10 backends hang; deadline 5 s", v.n), During: 40 * time.Second,
			Server: Server{Backends: 10, AttemptTimeout: -1, Faults: []Fault{{Backends: upTo(v.n), Response: Response{Hang: true}}}},
			Load:   Load{Deadline: 5 * time.Second},
			Targets: []Target{
				atLeast("success", Result.Success, v.success, "%.4f"),
				atLeast("success", Result.Success, v.goal, "%.4f").goal(),
			},
		}
	}, hanging{1, 0.985, 0.99}, hanging{3, 0.91, 0.95})
	return append(append(fails, hang...), deploy())
}

// upTo returns the first n backends.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// deploy restarts one backend after another.
func deploy() Scenario {
	s := Scenario{
		Row: 11, Name: "deploy", Note: "rolling deployment: ten backends restart one after another, 3.8 s each", During: 100 * time.Second,
		Server: Server{Backends: 10}, Load: fleetOf(100),
		Targets: []Target{atLeast("success", Result.Success, 0.9995, "%.5f")},
	}
	for i := range 10 {
		from := time.Duration(i)*10*time.Second + 3*time.Second
		s.Server.Faults = append(s.Server.Faults, Fault{
			From: from, To: from + 3800*time.Millisecond, Backends: []int{i}, Response: Response{Err: ErrRefused},
		})
	}
	return s
}
