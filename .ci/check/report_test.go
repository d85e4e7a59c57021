package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShow_slowest(t *testing.T) {
	var events strings.Builder
	end := func(action, test string, elapsed float64) {
		fmt.Fprintf(&events, "{\"Action\":%q,\"Package\":\"p\",\"Test\":%q,\"Elapsed\":%v}\n", action, test, elapsed)
	}
	end("run", "TestRun", 99) // not an end
	end("pass", "TestSlow/row", 98)
	end("pass", "", 97) // the package
	end("skip", "TestSkipped", 96)
	for i := range maxSlowest + 2 {
		end("pass", fmt.Sprint("Test", i), float64(i))
	}
	end("fail", "TestFailed", 3.5)
	slow := &slowest{}
	require.NoError(t, show(strings.NewReader(events.String()), &bytes.Buffer{}, slow.add))
	var printed bytes.Buffer
	slow.print(&printed)
	want := []string{"p Test9", "p Test8", "p Test7", "p Test6", "p Test5", "p Test4", "p TestFailed", "p Test3"}
	got := strings.Split(strings.TrimSpace(printed.String()), "\n")
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, strings.HasSuffix(got[i], "s  "+want[i]), "%s: want %s", got[i], want[i])
	}
}
