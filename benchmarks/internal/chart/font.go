package chart

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// families are fonts of equal widths, with a generic fallback.
const families = "Liberation Sans, Arimo, Arial, Helvetica, sans-serif"

// sans is the font of all texts.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"} //nolint:gochecknoglobals // a constant

// blank returns an empty plot.
func blank() *plot.Plot {
	p := plot.New()
	for _, style := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font = font.From(sans, style.Font.Size)
	}
	return p
}

// textElement matches a text of gonum: attributes, family, size, content.
var textElement = regexp.MustCompile(`<text ([^>]*)font-family:[^;]*;([^>]*font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// portable adds fallback fonts and the computed width to each text of an SVG, so that it has
// the same width in all fonts.
func portable(svg []byte) []byte {
	return textElement.ReplaceAllFunc(svg, func(element []byte) []byte {
		part := textElement.FindSubmatch(element)
		size, err := strconv.ParseFloat(string(part[3]), 64)
		if err != nil || len(bytes.TrimSpace(part[4])) == 0 {
			return element
		}
		face := font.DefaultCache.Lookup(sans, vg.Length(size))
		width := face.Width(html.UnescapeString(string(part[4])))
		return fmt.Appendf(nil, `<text textLength="%.2f" lengthAdjust="spacingAndGlyphs" %sfont-family:%s;%s>%s</text>`,
			width.Points(), part[1], families, part[2], part[4])
	})
}
