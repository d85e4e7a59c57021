package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

// README.md shows what the program prints.
func TestTable_isInReadme(t *testing.T) {
	doctable.Example(t, "../../../README.md", "charges", table(t, false))
}

// README.md says what the key alone does for go-retryablehttp.
func TestTable_withAKey(t *testing.T) {
	require.Regexp(t, `(?m)^doubled +0 +0 +0$`, table(t, true))
}
