package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

const (
	gridField = "grid"
	maxGrid   = 3         // fields
	maxTried  = 3_000_000 // calls of a grid
)

// knob is a field of the configuration that decides about failed calls, and values that the lab tries beside the present one.
type knob struct {
	Name   string
	values []any
	causes []error // that end calls
}

func knobs() []knob {
	timeouts := []error{resilienthttp.ErrDeadline, resilienthttp.ErrAttemptTimeout}
	return []knob{
		{"Policy.MaxAttempts", []any{3, 12}, []error{resilienthttp.ErrMaxAttempts}},
		{"Policy.MaxRetryAfter", []any{"10s", "10m"}, []error{resilienthttp.ErrRetryAfter}},
		{"Budget.Ratio", []any{0.3, -1}, []error{resilienthttp.ErrBudgetExhausted}},
		{"Budget.Burst", []any{20, 100}, []error{resilienthttp.ErrBudgetExhausted}},
		{"Breaker.MaxWait", []any{"-1s", "1m"}, []error{resilienthttp.ErrBreakerOpen}},
		{"Breaker.MaxCooldown", []any{"500ms", "10s"}, []error{resilienthttp.ErrBreakerOpen}},
		{"RateLimit.MaxWait", []any{"5s", "1m"}, []error{resilienthttp.ErrRateLimited}},
		{"Policy.AttemptTimeout", []any{"250ms", "2s"}, append(timeouts, resilienthttp.ErrMaxAttempts)},
		{"Hedge.Delay", []any{"50ms", "500ms"}, timeouts},
	}
}

// knobs returns the fields that decide about the failed calls, those of the most frequent cause first.
func (r *Run) knobs() (names []string) {
	for _, cause := range r.Ended {
		for _, k := range knobs() {
			decides := slices.ContainsFunc(k.causes, func(err error) bool { return err.Error() == cause.Text })
			if decides && len(names) < maxGrid && !slices.Contains(names, k.Name) {
				names = append(names, k.Name)
			}
		}
	}
	return names
}

func (s *Spec) setGrid(names []string) error {
	for _, name := range names {
		i := slices.IndexFunc(knobs(), func(k knob) bool { return k.Name == name })
		if i < 0 {
			return fmt.Errorf("no values to try for the field %.40q", name)
		}
		s.grid = append(s.grid, knobs()[i])
		s.values.Add(gridField, name)
	}
	if len(s.grid) > maxGrid {
		return fmt.Errorf("%d fields to try (want at most %d)", len(s.grid), maxGrid)
	}
	if tried := s.calls() * math.Pow(3, float64(len(s.grid))); len(s.grid) > 0 && tried > maxTried {
		return fmt.Errorf("%.0f calls to try the values (want at most %d)", tried, maxTried)
	}
	return nil
}

// variant is a point of the grid.
type variant struct{ label, config string }

// variants returns the points of the grid: the present configuration first, twice, because two runs of it differ by chance.
func (s *Spec) variants() []variant {
	present := variant{peers.Ours, merged(s.config, "", nil)}
	all := []variant{present}
	for _, k := range s.grid {
		for _, v := range slices.Clone(all) {
			for _, value := range k.values {
				label := fmt.Sprintf("%s, %s %v", v.label, k.Name, value)
				all = append(all, variant{label, merged(v.config, k.Name, value)})
			}
		}
	}
	return append([]variant{present}, all...)
}

// merged returns the configuration with the value at a field. Parse has checked that it is an object; "" is an empty one.
func merged(config, name string, value any) string {
	root := map[string]any{}
	if config != "" {
		if err := json.Unmarshal([]byte(config), &root); err != nil {
			panic(err)
		}
	}
	if part, field, ok := strings.Cut(name, "."); ok {
		inner, _ := root[key(root, part)].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
		}
		inner[key(inner, field)] = value
		root[key(root, part)] = inner
	}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// key returns the name as the object has it: a configuration may write it in any case.
func key(object map[string]any, name string) string {
	for has := range object {
		if strings.EqualFold(has, name) {
			return has
		}
	}
	return name
}

// Proposal is the best point of a grid.
type Proposal struct {
	Tried  int
	Config string // "": the present configuration is the best
}

// propose keeps the bare client, the present configuration and the best one.
func (r *Report) propose(variants []variant) {
	const present, again = 1, 2
	chance := math.Abs(r.Runs[present].Success() - r.Runs[again].Success())
	best := present
	for i := again + 1; i < len(r.Runs); i++ {
		if r.Runs[i].isBetter(&r.Runs[best], chance) {
			best = i
		}
	}
	r.Proposal = &Proposal{Tried: len(variants) - 1}
	if !r.Runs[best].isBetter(&r.Runs[present], chance) {
		r.Runs = r.Runs[:again]
		return
	}
	r.Proposal.Config = variants[best-1].config
	r.Runs = []Run{r.Runs[0], r.Runs[1], r.Runs[best]}
}

// isBetter reports whether more calls succeed, by more than chance, or else with fewer attempts, or sooner.
func (r *Run) isBetter(than *Run, chance float64) bool {
	more := r.Success() - than.Success()
	load := r.PerCall() / max(than.PerCall(), 0.01)
	switch {
	case math.Abs(more) >= max(0.005, 2*chance):
		return more > 0
	case math.Abs(load-1) >= 0.1:
		return load < 1
	default:
		return r.P99 < 0.8*than.P99
	}
}
