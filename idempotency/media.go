package idempotency

import (
	"maps"
	"mime"
	"slices"
	"strings"
)

// bodyForm is how a body is compared.
type bodyForm uint8

const (
	formBytes bodyForm = iota
	formJSON
	formMultipart
)

// media is a body's Content-Type.
type media struct {
	form     bodyForm
	boundary string
	text     []string // the type and its parameters, as far as they matter
}

// mediaOf reads the field's values. What is not a media type is compared as it is,
// and so is the body.
func mediaOf(values []string) media {
	if len(values) == 1 && values[0] == "application/json" { // what nearly all send
		return media{form: formJSON, text: []string{"type", "application/json"}}
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
		m.form = formJSON
		if strings.EqualFold(params["charset"], "utf-8") {
			delete(params, "charset")
		}
	case strings.HasPrefix(name, "multipart/"):
		m.form, m.boundary = formMultipart, params["boundary"]
		delete(params, "boundary")
	}
	m.text = mediaText(name, params)
	return m
}

func rawMedia(values []string) media { return media{text: append([]string{"raw"}, values...)} }

// mediaText is the same for values that differ in blanks, letters that do not
// matter, quotes, and the order of parameters.
func mediaText(name string, params map[string]string) []string {
	text := []string{"type", name}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		text = append(text, key, params[key])
	}
	return text
}

// parseMedia is mime.ParseMediaType where that loses nothing. Of the extended
// notation of RFC 2231 (name*=...) it drops what it cannot decode.
func parseMedia(value string) (name string, params map[string]string, ok bool) {
	if strings.Contains(value, "*") {
		return "", nil, false
	}
	name, params, err := mime.ParseMediaType(value)
	return name, params, err == nil
}
