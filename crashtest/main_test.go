package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args string
		want string // scenarios with their faults, or a part of the error
	}{
		{"-app payments", "payments sqlite transactional map[kill:50 stop:5]; payments sqlite non-transactional map[kill:50 stop:5]; " +
			"payments postgres transactional map[kill:50 postmaster:5 stop:5]; payments postgres non-transactional map[kill:50 postmaster:5 stop:5]"},
		{"-mode keys,transactional -db sqlite", "payments sqlite transactional map[kill:50 stop:5]; durable sqlite keys map[kill:50 stop:5]"},
		{"-mode asks -db postgres -kills 1 -stops 2 -strikes 3 -faults wire,backends,pgbouncer",
			"durable postgres asks map[backends:3 kill:1 pgbouncer:3 stop:2 wire:3]"},
		{"-mode asks -db sqlite -faults wire,backends", "durable sqlite asks map[kill:50 stop:5 wire:5]"},
		{"-faults fire", "unknown fault"},
		{"-faults kill", "unknown fault"},
		{"-db both", "unknown database"},
		{"-app shop", "unknown app"},
		{"-mode both", "unknown mode"},
		{"-app payments -mode keys", "no scenario"},
		{"-orders 0", "must be positive"},
		{"-kills -1", "must not be negative"},
		{"-outage -1s", "outage is -1s"},
		{"-app durable -mode keys -faults clock -kills 0 -stops 0 -db postgres", "durable postgres keys map[clock:5]"},
		{"-app durable -faults clock -stops 0", "-kills 0 -stops 0"},
		{"-app payments -faults clock -kills 0 -stops 0", "for the app durable"},
		{"surplus", "unexpected argument"},
	} {
		t.Run(row.args, func(t *testing.T) {
			t.Parallel()
			scenarios, err := parse(strings.Fields(row.args))
			if err != nil {
				assert.ErrorContains(t, err, row.want)
				return
			}
			var got []string
			for _, s := range scenarios {
				got = append(got, fmt.Sprint(s.name(), " ", s.Counts()))
			}
			require.Equal(t, row.want, strings.Join(got, "; "))
		})
	}
}
