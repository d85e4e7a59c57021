package transcript

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTable_leavesOutEmptyColumns(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"1", "", "ké", "x"}, {"22"}, {"3", "", "", "y"}}
	assert.Equal(t, "#   key  end\n1   ké   x\n22\n3        y\n", Table([]string{"#", "never", "key", "end"}, rows))
	assert.Equal(t, "\n", Table([]string{"#"}, nil), "no rows: no column has a text")
}

func TestDuration_hasThreeDigits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 1234: "1.23µs", 98765 * time.Microsecond: "98.8ms", 1234567 * time.Microsecond: "1.23s",
		-1234567 * time.Microsecond: "-1.23s", 40*time.Minute + 1234*time.Millisecond: "40m1.23s",
	} {
		assert.Equal(t, want, Duration(d))
	}
}
