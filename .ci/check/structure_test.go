package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const measured = `package p

// A comment outside.
type both struct {
	one, two bool
	inner
	text string
}

func first() string {
	// A reason,
	// in two lines.
	s := ` + "`a\nb`" + ` // and a third

	return s
}

func second() { first() }
`

func TestStructure(t *testing.T) {
	f, err := parseSource("file.go", []byte(measured))
	require.NoError(t, err)
	assert.Equal(t, []structType{{"both", 4, 2}}, f.structs)
	assert.Equal(t, []function{{"first", 10, 17}, {"second", 19, 19}}, f.functions)
	assert.Equal(t, [...]int{12, 4, 3}, [...]int{f.code, f.inside, f.comments}, "code, code in functions, comments in functions")

	functions, err := passed([]*source{f}, "mode: atomic\n"+modulePath+"file.go:10.21,13.12 2 1\n"+modulePath+"file.go:19.17,19.26 1 0\nother/file.go:1.1,2.2 1 1\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"file.go:10 first"}, functions)
}
