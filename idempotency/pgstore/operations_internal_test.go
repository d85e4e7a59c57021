package pgstore

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReplay_predictor(t *testing.T) {
	t.Parallel()
	var p replayPredictor
	for i, row := range []struct{ isNew, predicts bool }{
		{true, false}, {true, true}, {true, true}, {false, true}, {false, false}, {true, true}, {false, false}, {false, false}, {true, false},
	} {
		p.record(row.isNew)
		assert.Equal(t, row.predicts, p.newKey(), i)
	}
}
