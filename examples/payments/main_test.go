package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, row := range []struct {
		args string
		want string // databases and modes, with their faults; or a part of the error
	}{
		{"", "sqlite transactional; sqlite non-transactional"},
		{"-db postgres -mode transactional", "postgres transactional"},
		{"-faults disk", "sqlite transactional disk; sqlite non-transactional disk"},
		{"-faults pgbouncer -mode non-transactional", "postgres non-transactional pgbouncer"},
		{"-mode transactional -faults wire,backends,postmaster,disk,pgbouncer,readonly",
			"sqlite transactional wire disk readonly; postgres transactional wire backends postmaster pgbouncer readonly"},
		{"-faults fire", "unknown fault"},
		{"-db oracle", "unknown database"},
		{"-mode both", "unknown mode"},
		{"-charges 0", "must be positive"},
		{"-kills -1", "must not be negative"},
		{"surplus", "unexpected argument"},
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
