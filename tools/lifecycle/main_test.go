package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"testing"
)

func TestDraw_fileIsUpToDate(t *testing.T) {
	var drawn bytes.Buffer
	draw(&drawn)
	got, err := os.ReadFile("../../docs/lifecycle.svg")
	if err != nil || !bytes.Equal(got, drawn.Bytes()) {
		t.Errorf("docs/lifecycle.svg differs from what this program draws, %v; run go -C tools run ./lifecycle > docs/lifecycle.svg", err)
	}
	for d := xml.NewDecoder(&drawn); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal("not well-formed:", err)
		}
	}
}
