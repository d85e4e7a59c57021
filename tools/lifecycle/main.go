// Lifecycle draws docs/lifecycle.svg: the steps of a call, from the gates to the result.
//
//	go -C tools run ./lifecycle > docs/lifecycle.svg
//
// The colours follow the reader's choice of a light or a dark page.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() { draw(os.Stdout) }

// box is a step, with its lines of text. The first line is its title.
type box struct {
	class      string // step, gate or end
	x, y, w, h int
	text       []string
}

// arrow leads through points. Its label is beside the first line.
type arrow struct {
	class  string // plain or dashed
	points [][2]int
	label  string
	x, y   int // of the label
}

func boxes() []box {
	return []box{
		{"end", 20, 40, 130, 64, []string{"client.Do(req)"}},
		{"step", 190, 40, 150, 64, []string{"Options", "idempotency key,", "policy, deadline"}},
		{"gate", 380, 40, 150, 64, []string{"Gates", "circuit breaker,", "rate limit"}},
		{"step", 570, 40, 150, 64, []string{"Attempt", "deadline header,", "timeout, send"}},
		{"gate", 760, 40, 150, 64, []string{"Classify", "status, headers,", "error"}},
		{"end", 950, 40, 150, 64, []string{"Response", "as it came,", "body unread"}},
		{"step", 570, 180, 150, 64, []string{"Second attempt", "of a slow", "safe request"}},
		{"gate", 760, 180, 150, 100, []string{"Retry?", "may be repeated,", "attempts, time left,", "circuit closed,", "retry token"}},
		{"end", 950, 180, 150, 100, []string{"Result", "last response,", "or *Error with", "all attempts and", "StopReason"}},
		{"step", 190, 180, 150, 64, []string{"Wait", "backoff with jitter,", "Retry-After"}},
		{"end", 380, 180, 150, 64, []string{"*Error", "ErrBreakerOpen,", "ErrRateLimited"}},
	}
}

func arrows() []arrow {
	return []arrow{
		{"plain", [][2]int{{150, 72}, {190, 72}}, "", 0, 0},
		{"plain", [][2]int{{340, 72}, {380, 72}}, "", 0, 0},
		{"plain", [][2]int{{530, 72}, {570, 72}}, "", 0, 0},
		{"plain", [][2]int{{720, 72}, {760, 72}}, "", 0, 0},
		{"plain", [][2]int{{910, 72}, {950, 72}}, "success or permanent", 870, 28},
		{"plain", [][2]int{{835, 104}, {835, 180}}, "transient or throttled", 845, 146},
		{"plain", [][2]int{{910, 230}, {950, 230}}, "no", 922, 222},
		{"plain", [][2]int{{455, 104}, {455, 180}}, "rejected", 465, 146},
		{"dashed", [][2]int{{645, 104}, {645, 180}}, "slow", 655, 146},
		{"dashed", [][2]int{{720, 200}, {740, 200}, {740, 90}, {760, 90}}, "", 0, 0},
		{"plain", [][2]int{{835, 280}, {835, 310}, {265, 310}, {265, 244}}, "yes: take the token, drain the response", 420, 302},
		{"plain", [][2]int{{265, 180}, {265, 142}, {360, 142}, {360, 90}, {380, 90}}, "", 0, 0},
	}
}

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1120 330" role="img" aria-labelledby="title">
<title id="title">The lifecycle of a call: options, gates, attempt, classification, and a retry or the result</title>
<style>
text { font: 14px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; text-anchor: middle; }
.body { font-size: 13px; text-anchor: middle; }
.label { font-size: 13px; fill: #59636e; }
rect { stroke: #59636e; stroke-width: 1.5; rx: 6px; }
.step { fill: #ddf4ff; }
.gate { fill: #fff8c5; }
.end { fill: #dafbe1; }
path { fill: none; stroke: #59636e; stroke-width: 1.5; }
.dashed { stroke-dasharray: 5 4; }
#tip path { fill: #59636e; stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.label { fill: #9198a1; }
rect { stroke: #9198a1; }
.step { fill: #0c2d6b; }
.gate { fill: #4b2900; }
.end { fill: #033a16; }
path { stroke: #9198a1; }
#tip path { fill: #9198a1; }
}
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>
`

// draw writes the diagram. Writing to memory or to standard output does not fail in a way
// that this program could handle.
func draw(w io.Writer) {
	fmt.Fprint(w, head)
	for _, a := range arrows() {
		var path strings.Builder
		for i, p := range a.points {
			fmt.Fprintf(&path, "%c%d %d", "ML"[min(i, 1)], p[0], p[1])
		}
		fmt.Fprintf(w, "<path class=%q d=%q marker-end=\"url(#tip)\"/>\n", a.class, path.String())
		if a.label != "" {
			fmt.Fprintf(w, "<text class=\"label\" x=\"%d\" y=\"%d\">%s</text>\n", a.x, a.y, a.label)
		}
	}
	for _, b := range boxes() {
		fmt.Fprintf(w, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", b.class, b.x, b.y, b.w, b.h)
		const lineHeight = 17
		y := b.y + b.h/2 + 5 - (len(b.text)-1)*lineHeight/2
		for i, line := range b.text {
			class := "body"
			if i == 0 {
				class = "title"
			}
			fmt.Fprintf(w, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", class, b.x+b.w/2, y+i*lineHeight, line)
		}
	}
	fmt.Fprintln(w, "</svg>")
}
