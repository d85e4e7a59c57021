package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/resilienthttp/resilienthttp/internal/ratelimitheader"
)

// Which responses are rejections by a quota, and which requests were served. Others are neither.
func TestResponse_classification(t *testing.T) {
	used := ratelimitheader.State{Exhausted: true}
	known := ratelimitheader.State{Exhausted: true, Dimensions: []ratelimitheader.Dimension{{Name: "a", Remaining: 1}, {Name: "b", Reset: time.Second}}}
	for _, row := range []struct {
		name             string
		answer           Response
		rejected, served bool
	}{
		{"nothing came", Response{}, false, false},
		{"success", Response{Status: 200}, false, true},
		{"not found", Response{Status: 404}, false, true},
		{"forbidden", Response{Status: 403}, false, true},
		{"forbidden for a while", Response{Status: 403, AsksToWait: true}, true, false},
		{"forbidden, used up", Response{Status: 403, Quota: used}, true, false},
		{"bad request", Response{Status: 400}, false, true},
		{"bad request, wait", Response{Status: 400, AsksToWait: true}, false, true},
		{"bad request, maybe the last of the quota", Response{Status: 400, Quota: used}, false, false},
		{"429", Response{Status: 429}, true, false},
		{"429, used up", Response{Status: 429, Quota: used}, true, false},
		{"429, used up until then", Response{Status: 429, Quota: known}, true, false},
		{"500", Response{Status: 500}, false, false},
		{"503", Response{Status: 503, AsksToWait: true}, false, false},
		{"503, used up", Response{Status: 503, Quota: used}, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.rejected, row.answer.rejected())
			assert.Equal(t, row.served, row.answer.served())
		})
	}
}
