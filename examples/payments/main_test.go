package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestArguments(t *testing.T) {
	for _, row := range []struct {
		args string
		want string // the databases and modes, with the faults that befall them
	}{
		{"", "sqlite joined; sqlite detached"},
		{"-db postgres -mode joined", "postgres joined"},
		{"-faults disk", "sqlite joined disk; sqlite detached disk"},
		{"-faults pgbouncer -mode detached", "postgres detached pgbouncer"},
		{"-mode joined -faults wire,backends,postmaster,disk,pgbouncer",
			"sqlite joined wire disk; postgres joined wire backends postmaster pgbouncer"},
		{"-faults fire", "there is no fault"},
		{"-db oracle", "there is no database"},
		{"-mode both", "there is no mode"},
		{"-charges 0", "there must be charges"},
		{"-kills -1", "less than never"},
		{"surplus", "what is"},
	} {
		t.Run(row.args, func(t *testing.T) {
			scenarios, err := parse(strings.Fields(row.args))
			if err != nil {
				assert.ErrorContains(t, err, row.want)
				return
			}
			var got []string
			for _, s := range scenarios {
				text := s.Database + " " + s.mode
				s.Kills, s.Stops, s.Strikes = 0, 0, 1
				for _, f := range s.List() {
					text += " " + f.Name()
				}
				got = append(got, text)
			}
			require.Equal(t, row.want, strings.Join(got, "; "))
		})
	}
}
