package chart

import "bytes"

// darkStyle changes what is neutral, for readers with a dark theme: white, black and the gray of a
// phase. The palette is legible on both. An SVG in an <img> follows the reader's theme too.
const darkStyle = `<style>@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
[style*="fill:#FFFFFF"] { fill: #0d1117 !important }
[style*="fill:#F0F0F0"] { fill: #21262d !important }
[style*="fill:#000000"] { fill: #e6edf3 !important }
[style*="stroke:#000000"] { stroke: #e6edf3 !important }
}</style>
`

// themed adds darkStyle to an SVG.
func themed(svg []byte) []byte {
	return bytes.Replace(svg, []byte("<g transform="), []byte(darkStyle+"<g transform="), 1)
}
