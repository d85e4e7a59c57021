package statepage

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/admission"
)

type (
	spans struct {
		Wait time.Duration `json:"wait"`
		Most *time.Duration
	}
	embeds struct {
		spans
		*Deep

		Named  spans `json:"named"`
		hidden time.Duration
		Never  time.Duration `json:"-"`
		None   time.Duration `json:"none,omitempty"`
		Zero   time.Duration `json:",omitzero"`
		At     time.Time
	}
	// Deep is embedded by its pointer.
	Deep struct{ Depth time.Duration }

	own  struct{ D time.Duration }
	node struct {
		Took time.Duration
		Next *node
	}
)

func (own) MarshalJSON() ([]byte, error) { return []byte(`"mine"`), nil }

// TestSpans: a time.Duration anywhere in a state is seconds in the JSON, and a span in the
// HTML; all else is as encoding/json has it.
func TestSpans(t *testing.T) {
	ring := &node{}
	ring.Next = ring
	for _, row := range []struct {
		name        string
		state       any
		want, shown string
	}{
		{"itself", 8159799 * time.Nanosecond, `0.008159799`, "s 8.16 ms"},
		{"one that is past", -time.Second, `-1`, "s -1 s"},
		{"none", time.Duration(0), `0`, "s 0 s"},
		{"nothing", nil, `null`, "s –"},
		{"a number that is none", int64(5), `5`, "s 5"},
		{"fields", spans{Wait: 1500 * time.Millisecond, Most: new(time.Minute)}, `{"wait":1.5,"Most":60}`, "wait 1.5 s Most 60 s"},
		{"a pointer", &spans{}, `{"wait":0,"Most":null}`, "wait 0 s Most –"},
		{"no pointer", (*spans)(nil), `null`, "s –"},
		{"a list", []time.Duration{time.Second, 2}, `[1,2e-9]`, "1 1 s 2 0"},
		{"no list", []time.Duration(nil), `null`, "s –"},
		{"an array", [1]spans{}, `[{"wait":0,"Most":null}]`, "1 › wait 0 s"},
		{"a map", map[string]any{"b": time.Second, "a": 1}, `{"a":1,"b":1}`, "a 1 b 1 s"},
		{"no map", map[string]time.Duration(nil), `null`, "s –"},
		{"embedded", embeds{spans: spans{Wait: 1}, hidden: 1, Never: 1}, `{"wait":1e-9,"Most":null,"named":{"wait":0,"Most":null},"At":"0001-01-01T00:00:00Z"}`, "named › wait 0 s"},
		{"embedded, all of it", embeds{Deep: &Deep{Depth: time.Second}, None: time.Second, Zero: time.Second}, `{"wait":0,"Most":null,"Depth":1,"named":{"wait":0,"Most":null},"none":1,"Zero":1,"At":"0001-01-01T00:00:00Z"}`, "Depth 1 s"},
		{"what marshals itself", []own{{1}}, `["mine"]`, "1 mine"},
		{"a chain", node{Next: &node{Took: time.Second}}, `{"Took":0,"Next":{"Took":1,"Next":null}}`, "Next › Took 1 s"},
		{"a ring", ring, ``, "*json.UnsupportedValueError"},
		{"a Shedder", (&admission.Shedder{}).State(), `{"Limit":20,"InFlight":0,"Queued":0,"BaselineLatency":0,"Admitted":0,"Rejected":0}`, "BaselineLatency 0 s"},
		{"that knows", admission.ShedderState{BaselineLatency: 8159799}, `{"Limit":0,"InFlight":0,"Queued":0,"BaselineLatency":0.008159799,"Admitted":0,"Rejected":0}`, "BaselineLatency 8.16 ms"},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := &Handler{Sources: []Source{{"s", func(context.Context) (any, error) { return row.state, nil }}}}
			require.Contains(t, shown(asked(h, http.MethodGet, "/").Body.String()), row.shown)
			p := decoded(t, h, "")
			if row.want == "" {
				require.NotEmpty(t, p.Sources[0].Error)
				return
			}
			require.Equal(t, row.want, string(p.Sources[0].State), "also the order")
			// Beside the spans, it is what encoding/json writes.
			var ours, theirs any
			require.NoError(t, json.Unmarshal(p.Sources[0].State, &ours))
			text, err := json.Marshal(row.state)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &theirs))
			require.Equal(t, shape(theirs), shape(ours))
		})
	}
}

// shape is a JSON value without its numbers.
func shape(v any) any {
	switch v := v.(type) {
	case float64:
		return 0
	case []any:
		for i := range v {
			v[i] = shape(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = shape(v[name])
		}
	}
	return v
}
