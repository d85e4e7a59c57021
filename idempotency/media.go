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
	name, params, ok := parseMedia(values[0])
	if !ok {
		return rawMedia(values)
	}
	m := media{}
	switch {
	case name == "application/json" || strings.HasSuffix(name, "+json"):
		if strings.EqualFold(params["charset"], "utf-8") {
			delete(params, "charset")
		}
	case strings.HasPrefix(name, "multipart/"):
		m.boundary = params["boundary"]
		delete(params, "boundary")
	}
	m.text = mediaText(name, params)
	return m
}

func rawMedia(values []string) media { return media{text: append([]string{"raw"}, values...)} }

// mediaText returns the same text for values that differ only in white space, letter case,
// quotes and the order of parameters.
func mediaText(name string, params map[string]string) []string {
	text := []string{"type", name}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		text = append(text, key, params[key])
	}
	return text
}

// parseMedia is mime.ParseMediaType for values of which it loses nothing. It would drop
// what it cannot decode of RFC 2231 (name*=...).
func parseMedia(value string) (name string, params map[string]string, ok bool) {
	if strings.Contains(value, "*") {
		return "", nil, false
	}
	name, params, err := mime.ParseMediaType(value)
	return name, params, err == nil
}
