package zoo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The criteria can be kept: the oracle keeps all of them, so it is never rejected.
func TestOracle_keepsAllCriteria(t *testing.T) {
	for number := range 400 {
		d := New(3, number)
		trial := Trial{Draw: d, Bare: d.bare(t), Oracle: d.oracle(t)}
		require.Zero(t, trial.Oracle.Rejected, "%v", d)
		trial.Ours = trial.Oracle
		if len(trial.Judge()) > 0 {
			t.Error(trial.Line())
		}
	}
}
