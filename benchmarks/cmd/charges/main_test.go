package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/doctable"
)

// README.md shows what the program prints.
func TestTable_isInReadme(t *testing.T) {
	doctable.Example(t, "../../../README.md", "charges", table(t, false))
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(readme), "\n", " ")
	require.Contains(t, text, fmt.Sprintf("charges %d customers, %d a second. It runs once with each of three clients. ", customers, perSecond))
	require.Contains(t, text, fmt.Sprintf("loses each tenth response, and is away for %g s. ", away.Seconds()))
	require.Contains(t, text, fmt.Sprintf("Each call has a deadline of %g s, ", deadline.Seconds()))
}

// README.md says what the key alone does for go-retryablehttp.
func TestTable_withAKey(t *testing.T) {
	require.Regexp(t, `(?m)^doubled +0 +0 +0$`, table(t, true))
}
