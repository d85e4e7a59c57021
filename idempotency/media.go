package idempotency

import (
	"maps"
	"mime"
	"slices"
	"strings"
)

// media is a body's Content-Type.
type media struct {
	boundary string   // of multipart
	text     []string // the type and its relevant parameters
}

// mediaOf reads the field's values. If they are not a media type, they and the body are
// compared unchanged.
func mediaOf(values []string) media {
	if len(values) == 1 && values[0] == "application/json" { // the most frequent value
		return media{text: []string{"type", "application/json"}}
	}
	if len(values) != 1 {
		return rawMedia(values)
	}
	name, params, err := mime.ParseMediaType(values[0])
	if err != nil || strings.Contains(values[0], "*") { // it would drop what it cannot decode of RFC 2231 (name*=...)
		return rawMedia(values)
	}
	// The same text for values that differ only in white space, letter case, quotes and the order of parameters.
	m := media{text: []string{"type", name}}
	switch {
	case name == "application/json" || strings.HasSuffix(name, "+json"):
		if strings.EqualFold(params["charset"], "utf-8") {
			delete(params, "charset")
		}
	case strings.HasPrefix(name, "multipart/"):
		m.boundary = params["boundary"]
		delete(params, "boundary")
	}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		m.text = append(m.text, key, params[key])
	}
	return m
}

func rawMedia(values []string) media { return media{text: append([]string{"raw"}, values...)} }
